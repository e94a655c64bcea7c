# mypy: ignore-errors
"""Fault: stack. A rollout stacks its trajectory, which nothing splits along the batch."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "cpu"
BATCH, WIDTH, STEPS = 1024, 256, 48


def _make(devices, is_split):
    mesh = Mesh(np.array(devices).reshape(4, 2), ("data", "model"))

    def spec(*names):
        return NamedSharding(mesh, P(*names))

    @jax.jit
    def rollout(params, x):
        def advance(state, _):
            state = jnp.tanh(state @ params["w"])
            if not is_split:
                state = jax.lax.with_sharding_constraint(state, spec(None, "model"))  # FAULT
            return state, state  # FAULT

        _, states = jax.lax.scan(advance, x, None, length=STEPS)  # FAULT
        return (states - states.mean(axis=0)).var(axis=(0, 2))

    params = {"w": S((WIDTH, WIDTH), "float32", sharding=spec("data", "model"))}
    return rollout, (params, S((BATCH, WIDTH), "float32", sharding=spec("data", "model")))


def make_faulty(devices):
    return _make(devices, False)  # FAULT


def make_fixed(devices):
    return _make(devices, True)
