# mypy: ignore-errors
"""Fault: replicated. The measured diffraction patterns, by far the largest array of the job, are laid out
whole on every device; only their scan positions are divided.

Ptychographic phase retrieval: a complex object and a few coherent probe modes are fitted to the measured
far-field amplitudes by gradient descent. Every device works through its own scan positions in small chunks.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclass(frozen=True)
class Experiment:
    positions: int = 4096
    frame: int = 128
    modes: int = 3
    canvas: int = 1024
    chunk: int = 32


@dataclass(frozen=True)
class Layout:
    """Where each array of the experiment lives."""

    specimen: P = field(default_factory=P)
    probe: P = field(default_factory=P)
    positions: P = field(default_factory=lambda: P("scan"))
    patterns: P = field(default_factory=P)  # FAULT


def exit_waves(specimen, probe, positions, frame):
    def cut(corner):
        return jax.lax.dynamic_slice(specimen, (corner[0], corner[1]), (frame, frame))

    views = jax.vmap(cut)(positions)
    return views[:, None] * probe[None]


def amplitude_misfit(specimen, probe, positions, amplitudes, frame):
    far = jnp.fft.fft2(exit_waves(specimen, probe, positions, frame), norm="ortho")
    modelled = jnp.sqrt(jnp.sum(far.real**2 + far.imag**2, axis=1) + 1e-8)
    return jnp.sum((modelled - amplitudes) ** 2)


def build_update(cfg, mesh, layout):
    def local_gradient(specimen, probe, positions, patterns):
        count = positions.shape[0] // cfg.chunk
        split = (
            positions.reshape(count, cfg.chunk, 2),
            patterns.reshape(count, cfg.chunk, cfg.frame, cfg.frame),
        )

        def one(totals, piece):
            where, counts = piece
            amplitudes = jnp.sqrt(counts.astype(jnp.float32))
            value, (g_obj, g_probe) = jax.value_and_grad(amplitude_misfit, argnums=(0, 1))(
                specimen, probe, where, amplitudes, cfg.frame
            )
            return (totals[0] + value, totals[1] + g_obj, totals[2] + g_probe), None

        start = (jnp.zeros(()), jnp.zeros_like(specimen), jnp.zeros_like(probe))
        totals, _ = jax.lax.scan(one, start, split)
        return jax.lax.psum(totals, "scan")

    gradient = jax.shard_map(
        local_gradient,
        mesh=mesh,
        in_specs=(layout.specimen, layout.probe, P("scan"), P("scan")),
        out_specs=P(),
        check_vma=False,
    )

    def update(specimen, probe, positions, patterns, rate):
        misfit, g_obj, g_probe = gradient(specimen, probe, positions, patterns)
        power = jnp.max(jnp.sum(jnp.abs(probe) ** 2, axis=0))
        specimen = specimen - rate * jnp.conj(g_obj) / power
        probe = probe - 0.1 * rate * jnp.conj(g_probe) / jnp.max(jnp.abs(specimen)) ** 2
        return specimen, probe, misfit / cfg.positions

    return update


def make_faulty(devices):
    cfg, layout = Experiment(), Layout()
    mesh = Mesh(np.array(devices), ("scan",))

    def arg(shape, dtype, spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    arguments = (
        arg((cfg.canvas, cfg.canvas), jnp.complex64, layout.specimen),
        arg((cfg.modes, cfg.frame, cfg.frame), jnp.complex64, layout.probe),
        arg((cfg.positions, 2), jnp.int32, layout.positions),
        arg((cfg.positions, cfg.frame, cfg.frame), jnp.uint16, layout.patterns),
        arg((), jnp.float32, P()),
    )
    return jax.jit(build_update(cfg, mesh, layout), donate_argnums=(0, 1)), arguments
