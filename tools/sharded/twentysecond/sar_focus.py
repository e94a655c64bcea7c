# mypy: ignore-errors
"""Fault: reshard. Between the range and the azimuth compression the echoes are put on every chip whole in order to
turn them from pulses to range gates; the exchange could go directly.

Synthetic-aperture radar image formation (range-Doppler) of several looks of one scene.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class Radar:
    looks: int = 6
    pulses: int = 8192
    gates: int = 2048
    chirp: float = 1.2e-3
    doppler: float = 7.0e-4


AXIS = ("row", "col")
BY_PULSE = P(None, AXIS, None)
BY_GATE = P(None, None, AXIS)
EVERYWHERE = P(None, None, None)


class Focus:
    """The processing chain on one mesh."""

    def __init__(self, radar, mesh):
        self.radar, self.mesh = radar, mesh

    def at(self, spec):
        return NamedSharding(self.mesh, spec)

    def local(self, fn, spec):
        """fn on each chip's part; the compressed dimension is whole there."""
        return jax.shard_map(fn, mesh=self.mesh, in_specs=(spec, P()), out_specs=spec, check_vma=False)

    def to_gates(self, x):
        x = jax.lax.with_sharding_constraint(x, self.at(EVERYWHERE))  # FAULT
        return jax.lax.with_sharding_constraint(x, self.at(BY_GATE))

    def replica(self, n, rate):
        t = jnp.arange(n, dtype=jnp.float32) - n / 2
        return jnp.fft.fft(jnp.exp(1j * jnp.pi * rate * t * t).astype(jnp.complex64))

    def compress_range(self, echo, replica):
        window = jnp.hanning(echo.shape[2]).astype(jnp.float32)
        return jnp.fft.ifft(jnp.fft.fft(echo * window, axis=2) * jnp.conj(replica), axis=2)

    def compress_azimuth(self, echo, replica):
        spectrum = jnp.fft.fft(echo, axis=1)
        return jnp.fft.ifft(spectrum * jnp.conj(replica)[:, None], axis=1)

    def __call__(self, real, imag, gain):
        radar = self.radar
        echo = jax.lax.complex(real.astype(jnp.float32), imag.astype(jnp.float32)) * gain[:, None, None]
        echo = self.local(self.compress_range, BY_PULSE)(echo, self.replica(radar.gates, radar.chirp))
        echo = self.to_gates(echo)
        image = self.local(self.compress_azimuth, BY_GATE)(echo, self.replica(radar.pulses, radar.doppler))
        power = jnp.mean(jnp.square(jnp.abs(image)), axis=0)
        decibel = 10.0 * jnp.log10(power + 1e-12)
        return jax.lax.with_sharding_constraint(decibel, self.at(P(None, AXIS)))


def make_faulty(devices):
    radar = Radar()
    mesh = Mesh(np.array(devices).reshape(4, 4), AXIS)
    focus = Focus(radar, mesh)
    shape = (radar.looks, radar.pulses, radar.gates)
    raw = jax.ShapeDtypeStruct(shape, jnp.int16, sharding=focus.at(BY_PULSE))
    gain = jax.ShapeDtypeStruct((radar.looks,), jnp.float32, sharding=focus.at(P()))
    return jax.jit(focus.__call__), (raw, raw, gain)
