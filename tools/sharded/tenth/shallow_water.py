# mypy: ignore-errors
"""Fault: stack. The snapshots that the time loop stacks are made whole along the "y" axis of the mesh,
though the state they are taken from is split on it: four times the bytes of the trajectory."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


class State(NamedTuple):
    height: jax.Array
    u: jax.Array
    v: jax.Array


class Physics(NamedTuple):
    dt: float = 0.01
    gravity: float = 9.81
    drag: float = 1e-3


RUNS, NY, NX, STEPS = 4, 512, 512, 48
STATE_SPEC = P("run", "y", None)
FRAME_SPEC = P("run", None, None)  # FAULT


def ddx(a):
    return 0.5 * (jnp.roll(a, -1, axis=2) - jnp.roll(a, 1, axis=2))


def ddy(a):
    return 0.5 * (jnp.roll(a, -1, axis=1) - jnp.roll(a, 1, axis=1))


def advance(s, depth, ph):
    u = s.u - ph.dt * (ph.gravity * ddx(s.height) + ph.drag * s.u)
    v = s.v - ph.dt * (ph.gravity * ddy(s.height) + ph.drag * s.v)
    total = s.height + depth
    return State(s.height - ph.dt * (ddx(total * u) + ddy(total * v)), u, v)


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("run", "y"))
    state_sh = NamedSharding(mesh, STATE_SPEC)
    frame_sh = NamedSharding(mesh, FRAME_SPEC)
    ph = Physics()

    def simulate(state, depth):
        def body(s, _):
            s = jax.tree.map(lambda a: lax.with_sharding_constraint(a, state_sh), advance(s, depth, ph))
            frame = lax.with_sharding_constraint(s.height, frame_sh)  # FAULT
            return s, frame

        final, frames = lax.scan(body, state, None, length=STEPS)
        energy = 0.5 * ph.gravity * jnp.mean(frames**2, axis=(2, 3))
        return final, frames, energy

    grid = jax.ShapeDtypeStruct((RUNS, NY, NX), jnp.float32, sharding=state_sh)
    depth = jax.ShapeDtypeStruct(
        (NY, NX), jnp.float32, sharding=NamedSharding(mesh, P("y", None))
    )
    return jax.jit(simulate, donate_argnums=0), (State(grid, grid, grid), depth)
