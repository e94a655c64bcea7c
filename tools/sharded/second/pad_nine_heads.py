# mypy: ignore-errors
"""Fault: padding. Nine attention heads are split over eight devices, so each one computes two (sixteen in all): the scores are padded by 78 %."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
B, T, H, S = 2, 2048, 9, 64


def attention(devices, spec):
    mesh = Mesh(np.array(devices), ("tp",))

    def attend(x, wq, wk, wv):
        q, k, v = (jnp.einsum("btd,dhs->bhts", x, w) for w in (wq, wk, wv))
        scores = jnp.einsum("bhqs,bhks->bhqk", q, k) / 8
        scores = jax.lax.with_sharding_constraint(scores, NamedSharding(mesh, spec))  # FAULT
        weights = jax.nn.softmax(scores)
        return jnp.einsum("bhqk,bhks->bqhs", weights * jax.nn.sigmoid(scores), v).reshape(B, T, H * S)

    split = NamedSharding(mesh, P("tp"))
    w = jax.ShapeDtypeStruct((H * S, H, S), jnp.float32, sharding=split)
    return jax.jit(attend, out_shardings=NamedSharding(mesh, P(None, "tp"))), (jax.ShapeDtypeStruct((B, T, H * S), jnp.float32, sharding=NamedSharding(mesh, P(None, "tp"))), w, w, w)


def make_faulty(devices):
    return attention(devices, P(None, "tp"))  # FAULT


def make_fixed(devices):
    return attention(devices, P(None, None, "tp"))
