# mypy: ignore-errors
"""Clean. A shallow-water ensemble forecast: members are made from one analysis, stepped forward together with a scan,
and reduced to the mean and the spread.
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

PERTURBED = 8
MEMBERS = 1 + PERTURBED
LEVELS, LATITUDES, LONGITUDES = 8, 512, 1024
STEPS = 24
DT, GRAVITY, CORIOLIS, DIFFUSION = 20.0, 9.81, 1e-4, 0.02


class State(NamedTuple):
    height: jax.Array
    u: jax.Array
    v: jax.Array


def gradient(field, axis):
    return 0.5 * (jnp.roll(field, -1, axis) - jnp.roll(field, 1, axis)) / 2.0e4


def smooth(field):
    total = sum(jnp.roll(field, shift, axis) for axis in (-2, -1) for shift in (1, -1))
    return field + DIFFUSION * (total - 4.0 * field)


def tendency(state):
    du = -GRAVITY * gradient(state.height, -1) + CORIOLIS * state.v
    dv = -GRAVITY * gradient(state.height, -2) - CORIOLIS * state.u
    dh = -gradient(state.height * state.u, -1) - gradient(state.height * state.v, -2)
    return State(dh, du, dv)


class Forecast:
    def __init__(self, mesh):
        self.mesh = mesh
        self.analysis = NamedSharding(mesh, P(None, "part", None))
        self.ensemble = NamedSharding(mesh, P(None, None, "part", None))
        self.product = NamedSharding(mesh, P(None, "part", None))

    def spread_out(self, state):
        return State(*(jax.lax.with_sharding_constraint(x, self.ensemble) for x in state))

    def perturb(self, analysis, amplitudes):
        def one(field, amplitude):
            wave = jnp.sin(jnp.arange(field.shape[-1]) * 2.0 * jnp.pi / field.shape[-1])
            amplitude = jnp.concatenate([jnp.zeros((1,)), amplitude])
            return field[None] * (1.0 + amplitude[:, None, None, None] * wave)

        return State(*(one(field, amplitudes[i]) for i, field in enumerate(analysis)))

    def step(self, state, _):
        change = tendency(state)
        state = State(*(smooth(x + DT * d) for x, d in zip(state, change)))
        return self.spread_out(state), None

    def __call__(self, analysis, amplitudes):
        members = self.spread_out(self.perturb(analysis, amplitudes))
        members, _ = jax.lax.scan(self.step, members, None, length=STEPS)
        mean = State(*(x.mean(axis=0) for x in members))
        spread = jnp.sqrt(jnp.mean((members.height - mean.height) ** 2, axis=0))
        return mean, spread


def make_fixed(devices):
    mesh = Mesh(np.asarray(devices).reshape(8), ("part",))
    forecast = Forecast(mesh)
    field = jax.ShapeDtypeStruct((LEVELS, LATITUDES, LONGITUDES), jnp.float32, sharding=forecast.analysis)
    amplitudes = jax.ShapeDtypeStruct((3, PERTURBED), jnp.float32, sharding=NamedSharding(mesh, P()))
    jitted = jax.jit(
        forecast,
        out_shardings=(State(forecast.product, forecast.product, forecast.product), forecast.product),
    )
    return jitted, (State(field, field, field), amplitudes)
