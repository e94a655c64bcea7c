# mypy: ignore-errors
"""Fault: padding. For the meridional sweep the tracers are spread over the chips: 20 tracers on 16 chips are
padded to 32, so the fields and their temporaries take 60 % more than their share.

Transport of atmospheric tracers, operator split: zonal advection (rows are local), meridional advection
(columns have to be local, so the fields change their layout), vertical diffusion and a little chemistry.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class Grid:
    tracers: int = 20
    levels: int = 32
    latitudes: int = 512
    longitudes: int = 1024
    steps: int = 6
    dt: float = 300.0
    radius: float = 6.371e6

    @property
    def shape(self):
        return self.tracers, self.levels, self.latitudes, self.longitudes


class Layout:
    """Which axis of (tracer, level, latitude, longitude) is spread over the chips, and when."""

    def __init__(self, mesh):
        self.zonal = NamedSharding(mesh, P(None, None, "chip"))
        self.meridional = NamedSharding(mesh, P("chip"))  # FAULT
        self.wind = NamedSharding(mesh, P(None, "chip"))


def van_leer(q, courant, axis):
    """Second-order upwind flux at the lower face of each cell, periodic."""
    behind, ahead = jnp.roll(q, 1, axis), jnp.roll(q, -1, axis)
    product = (q - behind) * (ahead - q)
    total = ahead - behind
    slope = jnp.where(product > 0, 2.0 * product / jnp.where(total == 0, 1.0, total), 0.0)
    from_left = jnp.roll(q + 0.5 * slope * (1.0 - courant), 1, axis)
    from_right = q - 0.5 * slope * (1.0 + courant)
    return courant * jnp.where(courant > 0, from_left, from_right)


def advect(q, courant, axis):
    flux = van_leer(q, courant, axis)
    return q + flux - jnp.roll(flux, -1, axis)


def diffuse(q, kappa):
    padded = jnp.pad(q, ((0, 0), (1, 1), (0, 0), (0, 0)), mode="edge")
    return q + kappa * (padded[:, 2:] - 2.0 * q + padded[:, :-2])


def react(q, rates, dt):
    """Each tracer decays into its successor in the chain."""
    loss = q * (1.0 - jnp.exp(-rates * dt))[:, None, None, None]
    return q - loss + jnp.pad(loss[:-1], ((1, 0), (0, 0), (0, 0), (0, 0)))


def transport(q, u, v, rates, *, grid, layout):
    pin = jax.lax.with_sharding_constraint
    latitude = (jnp.arange(grid.latitudes) + 0.5) / grid.latitudes * jnp.pi - jnp.pi / 2
    dx = 2 * jnp.pi * grid.radius * jnp.cos(latitude) / grid.longitudes
    dy = jnp.pi * grid.radius / grid.latitudes
    zonal = jnp.clip(u * grid.dt / dx[None, :, None], -0.95, 0.95)
    meridional = jnp.clip(v * grid.dt / dy, -0.95, 0.95)

    def step(q, _):
        q = pin(advect(q, zonal, axis=3), layout.zonal)
        q = pin(q, layout.meridional)  # FAULT
        q = pin(advect(q, meridional, axis=2), layout.meridional)
        q = pin(q, layout.zonal)
        q = react(diffuse(q, 0.05), rates, grid.dt)
        q = pin(jnp.maximum(q, 0.0), layout.zonal)
        return q, q.sum((1, 2, 3))

    return jax.lax.scan(step, q, None, length=grid.steps)


def make_faulty(devices):
    grid = Grid()
    mesh = Mesh(np.array(devices), ("chip",))
    layout = Layout(mesh)
    whole = NamedSharding(mesh, P())
    q = jax.ShapeDtypeStruct(grid.shape, jnp.float32, sharding=layout.zonal)
    u = jax.ShapeDtypeStruct(grid.shape[1:], jnp.float32, sharding=layout.wind)
    v = jax.ShapeDtypeStruct(grid.shape[1:], jnp.float32, sharding=layout.wind)
    rates = jax.ShapeDtypeStruct((grid.tracers,), jnp.float32, sharding=whole)
    run = jax.jit(
        functools.partial(transport, grid=grid, layout=layout),
        donate_argnums=0,
        out_shardings=(layout.zonal, whole),
    )
    return run, (q, u, v, rates)
