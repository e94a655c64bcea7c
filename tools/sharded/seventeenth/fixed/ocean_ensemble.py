# mypy: ignore-errors
"""Clean. Ensemble forecast with a shallow-water model; members and latitudes are split, in the state as
in the stacked frames.
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

GRAVITY = 9.81
CORIOLIS = 1.0e-4
VISCOSITY = 25.0
MEAN_DEPTH = 400.0


class Ocean(NamedTuple):
    """Height anomaly and velocities, each (member, lat, lon), periodic in both directions."""

    h: jax.Array
    u: jax.Array
    v: jax.Array


class Forecast(NamedTuple):
    members: int = 4
    lat: int = 512
    lon: int = 1024
    frames: int = 32
    substeps: int = 24
    dt: float = 15.0
    dx: float = 5.0e3


class Layout:
    """Where the arrays of the forecast live."""

    def __init__(self, mesh):
        frame = P("ens", "space")
        self.state = NamedSharding(mesh, P("ens", "space"))
        self.frame = NamedSharding(mesh, frame)
        self.history = NamedSharding(mesh, P(None, *frame))
        self.series = NamedSharding(mesh, P(None, "ens"))
        self.maps = NamedSharding(mesh, P("space"))


def ddx(f, dx):
    return (jnp.roll(f, -1, axis=2) - jnp.roll(f, 1, axis=2)) / (2 * dx)


def ddy(f, dx):
    return (jnp.roll(f, -1, axis=1) - jnp.roll(f, 1, axis=1)) / (2 * dx)


def laplacian(f, dx):
    rolls = (jnp.roll(f, s, axis=a) for a in (1, 2) for s in (-1, 1))
    return (sum(rolls) - 4 * f) / dx**2


def tendency(s, bathymetry, w):
    depth = MEAN_DEPTH + bathymetry + s.h
    dh = -(ddx(depth * s.u, w.dx) + ddy(depth * s.v, w.dx))
    advect = lambda f: s.u * ddx(f, w.dx) + s.v * ddy(f, w.dx)
    du = CORIOLIS * s.v - GRAVITY * ddx(s.h, w.dx) - advect(s.u) + VISCOSITY * laplacian(s.u, w.dx)
    dv = -CORIOLIS * s.u - GRAVITY * ddy(s.h, w.dx) - advect(s.v) + VISCOSITY * laplacian(s.v, w.dx)
    return Ocean(dh, du, dv)


def midpoint(s, bathymetry, w):
    half = jax.tree.map(lambda x, d: x + 0.5 * w.dt * d, s, tendency(s, bathymetry, w))
    return jax.tree.map(lambda x, d: x + w.dt * d, s, tendency(half, bathymetry, w))


def energy(s, dx):
    kinetic = 0.5 * (MEAN_DEPTH + s.h) * (s.u**2 + s.v**2)
    return jnp.sum(kinetic + 0.5 * GRAVITY * s.h**2, axis=(1, 2)) * dx**2


def forecast(initial, bathymetry, wind, w, layout):
    """Runs the ensemble and returns its last state, the maps of every frame and their energy."""

    def substep(_, s):
        s = midpoint(s, bathymetry, w)
        return s._replace(u=s.u + w.dt * wind)

    def frame(s, _):
        s = lax.fori_loop(0, w.substeps, substep, s)
        maps = jax.tree.map(lambda x: lax.with_sharding_constraint(x, layout.frame), s)
        return s, (maps, energy(s, w.dx))

    last, (history, energies) = lax.scan(frame, initial, None, length=w.frames)
    spread = jax.tree.map(lambda x: jnp.std(x, axis=0), last)
    return last, history, energies, spread


def make_fixed(devices):
    w = Forecast()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("ens", "space"))
    layout = Layout(mesh)
    outputs = (
        Ocean(*[layout.state] * 3),
        Ocean(*[layout.history] * 3),
        layout.series,
        Ocean(*[layout.maps] * 3),
    )

    def array(sharding, *shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    run = jax.jit(
        lambda initial, bathymetry, wind: forecast(initial, bathymetry, wind, w, layout),
        donate_argnums=0, out_shardings=outputs,
    )
    initial = Ocean(*(array(layout.state, w.members, w.lat, w.lon) for _ in Ocean._fields))
    return run, (initial, array(layout.maps, w.lat, w.lon), array(layout.maps, w.lat, w.lon))
