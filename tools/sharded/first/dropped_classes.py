# mypy: ignore-errors
"""Fault: dropped. Scores of 1001 classes over 8 devices: the constraint does not divide them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "cpu"


def _make(devices, scores_by):
    mesh = Mesh(np.array(devices), ("data",))
    rows = NamedSharding(mesh, P("data"))

    @jax.jit
    def score(params, x):
        hidden = jnp.tanh(x @ params["w1"])
        scores = hidden @ params["w2"]
        return jax.lax.with_sharding_constraint(scores, NamedSharding(mesh, scores_by))  # FAULT

    params = {
        "w1": S((1024, 1024), "float32", sharding=rows),
        "w2": S((1024, 1001), "float32", sharding=rows),
    }
    return score, (params, S((16384, 1024), "float32", sharding=rows))


def make_faulty(devices):
    return _make(devices, P(None, "data"))  # FAULT


def make_fixed(devices):
    return _make(devices, P("data"))
