# mypy: ignore-errors
"""Fault: reshard. The filtering stage hands its result out whole, although it is divided by angles before and
by slices of the volume afterwards; the sinogram passes through full replication.

Filtered back-projection for a parallel-beam synchrotron tomograph. The projections are recorded, corrected and
filtered angle by angle; the volume is reconstructed slice by slice.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

ANGLES, SLICES, COLUMNS = 720, 192, 1024
TAPS = 64  # half length of the ramp filter's kernel


def ramp_kernel(taps):
    """The band-limited ramp filter in real space (Kak and Slaney, eq. 3.61)."""
    at = np.arange(-taps, taps + 1)
    kernel = np.zeros(at.shape, np.float32)
    odd = at % 2 == 1
    kernel[odd] = -1.0 / (np.pi * at[odd]) ** 2
    kernel[taps] = 0.25
    return kernel


class Reconstruction:
    def __init__(self, devices):
        self.mesh = Mesh(np.array(devices), ("chip",))
        self.whole = NamedSharding(self.mesh, P())
        self.by_angle = NamedSharding(self.mesh, P("chip", None, None))
        self.by_slice = NamedSharding(self.mesh, P(None, "chip", None))
        self.volume = NamedSharding(self.mesh, P("chip", None, None))
        self.prepare = jax.jit(self._prepare, out_shardings=self.whole)  # FAULT
        self.project_back = jax.jit(self._project_back, out_shardings=self.volume)

    def _prepare(self, counts, flat, dark):
        """Transmission to absorption, ring suppression and the ramp filter, along the detector's columns."""
        counts = jax.lax.with_sharding_constraint(counts, self.by_angle)
        signal = (counts.astype(jnp.float32) - dark) / jnp.maximum(flat - dark, 1.0)
        absorption = -jnp.log(jnp.clip(signal, 1e-4, 1.0))
        ring = absorption.mean(axis=0)
        smooth = jnp.stack([jnp.roll(ring, s, axis=-1) for s in range(-4, 5)]).mean(axis=0)
        absorption = absorption - (ring - smooth)
        offset = jnp.arange(COLUMNS)[:, None] - jnp.arange(COLUMNS)[None, :]
        kernel = jnp.asarray(ramp_kernel(TAPS))[jnp.clip(offset + TAPS, 0, 2 * TAPS)]
        band = jnp.where(jnp.abs(offset) <= TAPS, kernel, 0.0)
        return jnp.einsum("ask,ck->asc", absorption, band)

    def _project_back(self, filtered, angles, centre):
        """Smears every filtered projection over the slices, with linear interpolation as a matrix product."""
        filtered = jax.lax.with_sharding_constraint(filtered, self.by_slice)
        side = COLUMNS // 2
        y, x = jnp.meshgrid(jnp.arange(side) - side / 2, jnp.arange(side) - side / 2, indexing="ij")
        column = jnp.arange(COLUMNS, dtype=jnp.float32)

        def lines(volume, piece):
            projection, angle = piece
            at = 2.0 * (x * jnp.cos(angle) + y * jnp.sin(angle)) + centre

            def row(where):
                weight = jnp.maximum(0.0, 1.0 - jnp.abs(where[:, None] - column[None, :]))
                return projection @ weight.T

            smear = jax.lax.map(row, at)  # (side, slices, side)
            volume = volume + jnp.swapaxes(smear, 0, 1)
            return jax.lax.with_sharding_constraint(volume, self.volume), None

        start = jax.lax.with_sharding_constraint(jnp.zeros((SLICES, side, side)), self.volume)
        volume, _ = jax.lax.scan(lines, start, (filtered, angles))
        return volume * (jnp.pi / ANGLES)

    def __call__(self, counts, flat, dark, angles, centre, trusted):
        filtered = self.prepare(counts, flat, dark)
        filtered = filtered * (trusted * ANGLES / trusted.sum())[:, None, None]
        volume = self.project_back(filtered, angles, centre)
        inside = jnp.maximum(volume, 0.0)
        return volume, inside.mean(axis=(1, 2))


def make_faulty(devices):
    job = Reconstruction(devices)
    describe = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32, sharding=job.whole)
    counts = jax.ShapeDtypeStruct((ANGLES, SLICES, COLUMNS), jnp.uint16, sharding=job.by_angle)
    arguments = (
        counts,
        describe((SLICES, COLUMNS)),
        describe((SLICES, COLUMNS)),
        describe((ANGLES,)),
        describe(()),
        describe((ANGLES,)),
    )
    return jax.jit(job.__call__), arguments
