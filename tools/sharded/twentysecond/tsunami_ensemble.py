# mypy: ignore-errors
"""Clean. Tsunami run-up ensemble: uncertain sources on one bathymetry, members split over the devices, the sea floor
whole on each of them because every member needs all of it. Only arrival times and maxima are kept, no history.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

MEMBERS, NY, NX, STEPS = 48, 384, 512, 400
DX, DT, GRAVITY, FRICTION = 500.0, 1.5, 9.81, 0.025


class Sea(NamedTuple):
    level: jax.Array
    flux_x: jax.Array
    flux_y: jax.Array


class Record(NamedTuple):
    highest: jax.Array
    arrival: jax.Array


def uplift(source):
    """Initial displacement of one source: position, extent, strike and height."""
    x0, y0, length, width, strike, height = source
    y, x = jnp.meshgrid(jnp.arange(NY) * DX, jnp.arange(NX) * DX, indexing="ij")
    along = (x - x0) * jnp.cos(strike) + (y - y0) * jnp.sin(strike)
    across = (y - y0) * jnp.cos(strike) - (x - x0) * jnp.sin(strike)
    return height * jnp.exp(-((along / length) ** 2) - (across / width) ** 2)


def advance(sea, depth):
    """One step of the linear long-wave equations with bottom friction."""
    total = jnp.maximum(depth + sea.level, 0.05)
    east = (jnp.roll(sea.level, -1, 1) - sea.level) / DX
    north = (jnp.roll(sea.level, -1, 0) - sea.level) / DX
    drag = 1.0 + DT * GRAVITY * FRICTION**2 / total ** (7 / 3)
    fx = (sea.flux_x - DT * GRAVITY * total * east) / drag
    fy = (sea.flux_y - DT * GRAVITY * total * north) / drag
    wet = depth > 0.0
    fx, fy = jnp.where(wet, fx, 0.0), jnp.where(wet, fy, 0.0)
    spread = (fx - jnp.roll(fx, 1, 1) + fy - jnp.roll(fy, 1, 0)) / DX
    return Sea(sea.level - DT * spread, fx, fy)


def member(depth, source):
    still = jnp.zeros((NY, NX))

    def tick(carry, t):
        sea, record = carry
        sea = advance(sea, depth)
        here = (sea.level > 0.1) & (record.arrival < 0)
        record = Record(
            jnp.maximum(record.highest, sea.level),
            jnp.where(here, t * DT, record.arrival),
        )
        return (sea, record), None

    start = (Sea(uplift(source), still, still), Record(still, still - 1.0))
    (_, record), _ = jax.lax.scan(tick, start, jnp.arange(STEPS))
    return record


def make_clean(devices):
    mesh = Mesh(np.asarray(devices), ("member",))
    whole, members = NamedSharding(mesh, P()), NamedSharding(mesh, P("member"))

    def run(depth, sources):
        records = jax.vmap(member, in_axes=(None, 0), spmd_axis_name="member")(depth, sources)
        records = jax.lax.with_sharding_constraint(records, members)
        threatened = jnp.mean(records.highest > 1.0, axis=0)
        return records, threatened

    arguments = (
        jax.ShapeDtypeStruct((NY, NX), jnp.float32),
        jax.ShapeDtypeStruct((MEMBERS, 6), jnp.float32),
    )
    fn = jax.jit(run, in_shardings=(whole, members), out_shardings=(members, whole))
    return fn, arguments
