# mypy: ignore-errors
"""Fault: reshard. The fields go from the lat-lon decomposition straight to a decomposition over
levels, which the partitioner can only do by gathering the whole fields on every device."""
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Ocean:
    u: jax.Array  # (level, lat, lon)
    v: jax.Array
    temp: jax.Array
    salt: jax.Array


@dataclasses.dataclass(frozen=True)
class Grid:
    levels: int = 32
    nlat: int = 512
    nlon: int = 1024
    dt: float = 60.0
    dx: float = 25e3
    nu4: float = 1e11
    steps: int = 4


GRID_SPEC = P(None, "lat", "lon")  # halo exchange for the stencils
LEVEL_SPEC = P(("lon", "lat"), None, None)  # whole maps for the spectral filter


class Decomposition:
    """Moves fields between the two layouts of the model."""

    def __init__(self, mesh):
        self.mesh = mesh

    def _put(self, x, spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec))

    def to_grid(self, x):
        return self._put(x, GRID_SPEC)  # FAULT

    def to_levels(self, x):
        return self._put(x, LEVEL_SPEC)  # FAULT


class TwoStageDecomposition(Decomposition):
    def to_grid(self, x):
        x = self._put(x, P("lon", "lat", None))
        return self._put(x, GRID_SPEC)

    def to_levels(self, x):
        x = self._put(x, P("lon", "lat", None))
        return self._put(x, LEVEL_SPEC)


def ddx(f, dx):
    return (jnp.roll(f, -1, axis=2) - jnp.roll(f, 1, axis=2)) / (2 * dx)


def ddy(f, dx):
    padded = jnp.pad(f, ((0, 0), (1, 1), (0, 0)), mode="edge")
    return (padded[:, 2:] - padded[:, :-2]) / (2 * dx)


def advect(q, u, v, dx):
    return -(u * ddx(q, dx) + v * ddy(q, dx))


def pressure(temp, salt):
    return jnp.cumsum(9.81 * (1 - 2e-4 * (temp - 10.0) + 7.6e-4 * (salt - 35.0)), axis=0)


def coriolis(grid):
    lat = jnp.linspace(-jnp.pi / 2, jnp.pi / 2, grid.nlat)
    return (2 * 7.292e-5 * jnp.sin(lat))[None, :, None]


def hyperdiffusion(x, grid):
    """Implicit biharmonic filter of whole maps."""
    ky = 2 * jnp.pi * jnp.fft.fftfreq(grid.nlat, grid.dx)
    kx = 2 * jnp.pi * jnp.fft.rfftfreq(grid.nlon, grid.dx)
    k2 = ky[:, None] ** 2 + kx[None, :] ** 2
    damp = 1.0 / (1.0 + grid.dt * grid.nu4 * k2**2)
    return jnp.fft.irfft2(jnp.fft.rfft2(x) * damp, s=x.shape[1:])


def explicit(s, grid):
    p, f, d = pressure(s.temp, s.salt), coriolis(grid), grid.dx
    return Ocean(
        u=s.u + grid.dt * (advect(s.u, s.u, s.v, d) + f * s.v - ddx(p, d)),
        v=s.v + grid.dt * (advect(s.v, s.u, s.v, d) - f * s.u - ddy(p, d)),
        temp=s.temp + grid.dt * advect(s.temp, s.u, s.v, d),
        salt=s.salt + grid.dt * advect(s.salt, s.u, s.v, d),
    )


def advance(state, *, grid, layout):
    smooth = partial(hyperdiffusion, grid=grid)
    filtered = jax.shard_map(smooth, mesh=layout.mesh, in_specs=LEVEL_SPEC, out_specs=LEVEL_SPEC)

    def body(_, s):
        s = explicit(s, grid)
        return jax.tree.map(lambda x: layout.to_grid(filtered(layout.to_levels(x))), s)

    return jax.lax.fori_loop(0, grid.steps, body, state)


def build(devices, decomposition):
    grid, mesh = Grid(), Mesh(np.array(devices).reshape(4, 2), ("lat", "lon"))
    on_grid = NamedSharding(mesh, GRID_SPEC)
    field = jax.ShapeDtypeStruct((grid.levels, grid.nlat, grid.nlon), jnp.float32, sharding=on_grid)
    fn = jax.jit(partial(advance, grid=grid, layout=decomposition(mesh)), out_shardings=on_grid, donate_argnums=0)
    return fn, (Ocean(field, field, field, field),)


def make_faulty(devices):
    return build(devices, Decomposition)


def make_fixed(devices):
    return build(devices, TwoStageDecomposition)
