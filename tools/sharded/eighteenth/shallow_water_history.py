# mypy: ignore-errors
"""Fault: stack. The snapshots that the time loop stacks are laid out in bands over "x" and stay whole
along "y", although the fields that are stepped are split into tiles over both.

Linearised rotating shallow-water equations with bottom drag on a doubly periodic grid, forward-backward
time stepping in plain jnp.roll stencils; the compiler makes the halo exchanges. Functions declare the
layout of what they return with a decorator.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TARGET = "tpu-v5e:4x4"

NX, NY = 1024, 1024
SNAPSHOTS, STEPS_PER_SNAPSHOT = 64, 10
DX, DT = 2.0e3, 4.0
GRAVITY, DEPTH = 9.81, 400.0
CORIOLIS, BETA, DRAG, VISCOSITY = 1.0e-4, 2.0e-11, 1.0e-6, 50.0

TILES = ("x", "y")
BANDS = ("x", None)

_current_mesh = []


class Fields(NamedTuple):
    eta: jax.Array
    u: jax.Array
    v: jax.Array


def laid_out(*axes):
    """Decorator: every grid-shaped value that the function returns is constrained to `axes`."""

    def wrap(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            sharding = NamedSharding(_current_mesh[-1], PartitionSpec(*axes))
            return jax.tree.map(
                lambda x: jax.lax.with_sharding_constraint(x, sharding) if x.ndim == 2 else x,
                fn(*args, **kwargs),
            )

        return inner

    return wrap


def ddx(f):
    return (jnp.roll(f, -1, 0) - jnp.roll(f, 1, 0)) / (2 * DX)


def ddy(f):
    return (jnp.roll(f, -1, 1) - jnp.roll(f, 1, 1)) / (2 * DX)


def laplacian(f):
    around = jnp.roll(f, 1, 0) + jnp.roll(f, -1, 0) + jnp.roll(f, 1, 1) + jnp.roll(f, -1, 1)
    return (around - 4 * f) / DX**2


@laid_out(*TILES)
def coriolis_parameter():
    y = jax.lax.broadcasted_iota(jnp.float32, (NX, NY), 1) - NY / 2
    return CORIOLIS + BETA * DX * y


@laid_out(*TILES)
def wind_stress(t, amplitude):
    x = jax.lax.broadcasted_iota(jnp.float32, (NX, NY), 0) / NX
    y = jax.lax.broadcasted_iota(jnp.float32, (NX, NY), 1) / NY
    return amplitude * jnp.cos(2 * jnp.pi * (y - 1.0e-5 * t)) * (1 + 0.1 * jnp.sin(4 * jnp.pi * x))


@laid_out(*TILES)
def forward_backward(state, f, t, amplitude):
    """Height first, then the velocities with the new height."""
    eta = state.eta - DT * DEPTH * (ddx(state.u) + ddy(state.v))
    tau = wind_stress(t, amplitude)
    du = f * state.v - GRAVITY * ddx(eta) - DRAG * state.u + VISCOSITY * laplacian(state.u) + tau
    u = state.u + DT * du
    dv = -f * u - GRAVITY * ddy(eta) - DRAG * state.v + VISCOSITY * laplacian(state.v)
    return Fields(eta, u, state.v + DT * dv)


@laid_out(*BANDS)  # FAULT
def snapshot(state, f):
    """What is kept of a moment: height, potential vorticity, kinetic energy."""
    vorticity = ddx(state.v) - ddy(state.u)
    return {
        "eta": state.eta,
        "pv": (vorticity + f) / (DEPTH + state.eta),
        "ke": 0.5 * (state.u**2 + state.v**2),
    }


def energy(state):
    potential = 0.5 * GRAVITY * jnp.mean(state.eta**2)
    return potential + 0.5 * DEPTH * jnp.mean(state.u**2 + state.v**2)


def simulate(state, amplitude):
    f = coriolis_parameter()

    def advance(carry, _):
        state, t = carry
        state = forward_backward(state, f, t, amplitude)
        return (state, t + DT), None

    def record(carry, _):
        carry, _ = jax.lax.scan(advance, carry, None, length=STEPS_PER_SNAPSHOT)
        state, t = carry
        return carry, (snapshot(state, f), energy(state), t)

    (state, _), (history, energies, times) = jax.lax.scan(
        record, (state, jnp.float32(0.0)), None, length=SNAPSHOTS
    )
    return state, history, {"energy": energies, "time": times}


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), TILES)
    tiles = NamedSharding(mesh, PartitionSpec(*TILES))

    def run(state, amplitude):
        _current_mesh.append(mesh)
        try:
            return simulate(state, amplitude)
        finally:
            _current_mesh.pop()

    field = jax.ShapeDtypeStruct((NX, NY), jnp.float32, sharding=tiles)
    amplitude = jax.ShapeDtypeStruct((), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec()))
    return jax.jit(run, donate_argnums=0), (Fields(field, field, field), amplitude)
