# mypy: ignore-errors
"""Fault: padding. Eight perturbed members and the control make nine, split over eight devices: each is laid
out for two members, seven of the eight devices carry one of which nothing is used.

Ensemble forecast with the linear-friction shallow-water equations on a doubly periodic plane; returns the
mean and the spread of the ensemble.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class Forecast:
    ny: int = 1024
    nx: int = 1024
    perturbed: int = 8  # FAULT
    steps: int = 48
    dt: float = 20.0
    dx: float = 5e3
    gravity: float = 9.81
    coriolis: float = 1e-4
    drag: float = 2e-6
    amplitude: float = 0.3

    @property
    def members(self):
        return self.perturbed + 1  # the unperturbed control is member 0


MEMBERS_SPEC = P("device", None, None)  # FAULT
GRID_SPEC = P("device", None)


def d_dx(f, dx):
    return (jnp.roll(f, -1, axis=-1) - jnp.roll(f, 1, axis=-1)) / (2 * dx)


def d_dy(f, dx):
    return (jnp.roll(f, -1, axis=-2) - jnp.roll(f, 1, axis=-2)) / (2 * dx)


def tendencies(cfg, state):
    h, u, v = state
    du = -u * d_dx(u, cfg.dx) - v * d_dy(u, cfg.dx) + cfg.coriolis * v - cfg.gravity * d_dx(h, cfg.dx)
    dv = -u * d_dx(v, cfg.dx) - v * d_dy(v, cfg.dx) - cfg.coriolis * u - cfg.gravity * d_dy(h, cfg.dx)
    dh = -d_dx(h * u, cfg.dx) - d_dy(h * v, cfg.dx)
    return dh, du - cfg.drag * u, dv - cfg.drag * v


def shift(state, scale, rates):
    return jax.tree.map(lambda x, r: x + scale * r, state, rates)


def heun(cfg, state):
    first = tendencies(cfg, state)
    second = tendencies(cfg, shift(state, cfg.dt, first))
    return shift(state, cfg.dt / 2, jax.tree.map(jnp.add, first, second))


def perturb(cfg, analysis, key):
    """All members: the control as analysed, the others with smooth noise on the height."""
    h, u, v = analysis
    noise = jax.random.normal(key, (cfg.members, cfg.ny, cfg.nx))
    for axis in (-1, -2):
        noise = (jnp.roll(noise, 1, axis) + 2 * noise + jnp.roll(noise, -1, axis)) / 4
    noise = noise * (jnp.arange(cfg.members) > 0)[:, None, None]
    shape = (cfg.members, cfg.ny, cfg.nx)
    return h + cfg.amplitude * noise, jnp.broadcast_to(u, shape), jnp.broadcast_to(v, shape)


def make_faulty(devices):
    cfg = Forecast()
    mesh = Mesh(np.array(devices).reshape(8), ("device",))
    grid = NamedSharding(mesh, GRID_SPEC)
    members = NamedSharding(mesh, MEMBERS_SPEC)

    def pin(state):
        return tuple(jax.lax.with_sharding_constraint(x, members) for x in state)

    def forecast(analysis, key):
        state = pin(perturb(cfg, analysis, key))

        def advance(state, _):
            state = pin(heun(cfg, state))
            energy = sum(jnp.mean(x * x, axis=(-2, -1)) for x in state)
            return state, energy

        state, energy = jax.lax.scan(advance, state, None, length=cfg.steps)
        mean = tuple(x.mean(0) for x in state)
        spread = tuple(x.std(0) for x in state)
        return mean, spread, energy

    field = jax.ShapeDtypeStruct((cfg.ny, cfg.nx), jnp.float32, sharding=grid)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=NamedSharding(mesh, P()))
    jitted = jax.jit(forecast, out_shardings=(grid, grid, NamedSharding(mesh, P())))
    return jitted, ((field, field, field), key)
