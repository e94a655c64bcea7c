# mypy: ignore-errors
"""Fault: stack. Simulated states over 16 chips, stacked whole along the batch."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "tpu-v5e:4x4"
BATCH, WIDTH, STEPS = 4096, 2048, 64


def _make(devices, state_by):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))

    def spec(*names):
        return NamedSharding(mesh, P(*names))

    @jax.jit
    def simulate(params, x):
        def advance(state, _):
            moved = jnp.tanh(state @ params["w"])
            moved = jax.lax.with_sharding_constraint(moved, spec(*state_by))  # FAULT
            return moved, moved  # FAULT

        _, states = jax.lax.scan(advance, x, None, length=STEPS)  # FAULT
        return jnp.sort(states, axis=0)[STEPS // 2].mean(axis=1)

    params = {"w": S((WIDTH, WIDTH), "float32", sharding=spec("data", "model"))}
    return simulate, (params, S((BATCH, WIDTH), "float32", sharding=spec("data", "model")))


def make_faulty(devices):
    return _make(devices, (None, "model"))  # FAULT


def make_fixed(devices):
    return _make(devices, ("data", "model"))
