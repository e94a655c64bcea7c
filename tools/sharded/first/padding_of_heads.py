# mypy: ignore-errors
"""Fault: padding. Nine heads over eight devices: every device holds two, most of them padding."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "cpu"
BATCH, LENGTH, HEADS, SIZE = 16, 512, 9, 64


def _make(devices, scores_by):
    mesh = Mesh(np.array(devices), ("model",))

    @jax.jit
    def attend(q, k):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
        scores = jax.lax.with_sharding_constraint(scores, NamedSharding(mesh, scores_by))  # FAULT
        scores = jnp.sort(scores, axis=-1)
        return jnp.exp(scores - scores.max(-1, keepdims=True)).sum(-1)

    q = S((BATCH, LENGTH, HEADS, SIZE), "float32", sharding=NamedSharding(mesh, P("model")))
    return attend, (q, q)


def make_faulty(devices):
    return _make(devices, P(None, "model"))  # FAULT


def make_fixed(devices):
    return _make(devices, P("model"))
