# mypy: ignore-errors
"""Fault: stack. The depth snapshots that the scan stacks up are asked for whole on every chip, while the
field they are taken from is split by rows.

Flood routing by the diffusive wave over a digital elevation model; a snapshot of the depth is kept every
few steps for the inundation map.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Basin:
    rows: int = 2048
    columns: int = 1024
    cell: float = 10.0
    manning: float = 0.035
    dt: float = 0.5
    snapshots: int = 24
    every: int = 20


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the arrays of the simulation lie."""

    field: P = P("strip", None)
    gauges: P = P()
    history: P = P()  # FAULT

    def on(self, mesh):
        return {f.name: NamedSharding(mesh, getattr(self, f.name)) for f in dataclasses.fields(self)}


def face_flux(basin, depth, bed, axis):
    """Manning discharge per unit width through the faces between neighbours along an axis."""
    level = bed + depth
    slope = (jnp.roll(level, -1, axis) - level) / basin.cell
    flow = jnp.maximum(jnp.maximum(level, jnp.roll(level, -1, axis)) - jnp.maximum(bed, jnp.roll(bed, -1, axis)), 0.0)
    q = -(flow ** (5 / 3)) * slope / (basin.manning * jnp.sqrt(jnp.abs(slope) + 1e-5))
    last = jnp.arange(depth.shape[axis]) == depth.shape[axis] - 1
    return jnp.where(last[:, None] if axis == 0 else last[None, :], 0.0, q)


def advance(basin, depth, bed, rain):
    qy = face_flux(basin, depth, bed, 0)
    qx = face_flux(basin, depth, bed, 1)
    divergence = (qy - jnp.roll(qy, 1, 0)) + (qx - jnp.roll(qx, 1, 1))
    return jnp.maximum(depth + basin.dt * (rain - divergence / basin.cell), 0.0)


def simulate(basin, layout):
    def run(depth, bed, hyetograph):
        def snapshot(depth, intensity):
            def tick(_, d):
                return jax.lax.with_sharding_constraint(advance(basin, d, bed, intensity), layout["field"])

            depth = jax.lax.fori_loop(0, basin.every, tick, depth)
            return depth, (depth, jnp.stack([depth.max(), depth.mean()]))

        depth, (history, gauges) = jax.lax.scan(snapshot, depth, hyetograph)
        history = jax.lax.with_sharding_constraint(history, layout["history"])  # FAULT
        return depth, history, gauges

    return run


def make_faulty(devices):
    basin = Basin()
    mesh = Mesh(np.asarray(devices).reshape(-1), ("strip",))
    layout = Layout().on(mesh)

    def field():
        return jax.ShapeDtypeStruct((basin.rows, basin.columns), jnp.float32, sharding=layout["field"])

    hyetograph = jax.ShapeDtypeStruct((basin.snapshots,), jnp.float32, sharding=layout["gauges"])
    fn = jax.jit(simulate(basin, layout), donate_argnums=0)
    return fn, (field(), field(), hyetograph)
