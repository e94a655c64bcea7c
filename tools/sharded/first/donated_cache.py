# mypy: ignore-errors
"""Fault: donated. A cache is split by batch and heads and returned by batch: not in its memory."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "tpu-v5e:2x2"
BATCH, LENGTH, HEADS, SIZE = 32, 4096, 16, 128


def _decode(cache, q, position):
    new = q[:, None]
    cache = jax.lax.dynamic_update_slice(cache, new, (0, position, 0, 0))
    scores = jax.nn.softmax(jnp.einsum("bhd,blhd->bhl", q, cache))
    return cache, jnp.einsum("bhl,blhd->bhd", scores, cache)


def _make(devices, returned_by):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))

    def spec(*names):
        return NamedSharding(mesh, P(*names))

    cache = S((BATCH, LENGTH, HEADS, SIZE), "bfloat16", sharding=spec("data", None, "model"))
    q = S((BATCH, HEADS, SIZE), "bfloat16", sharding=spec("data", "model"))
    position = S((), "int32", sharding=spec())
    decode = jax.jit(  # FAULT
        _decode,
        donate_argnums=0,
        out_shardings=(spec(*returned_by), spec("data", "model")),  # FAULT
    )
    return decode, (cache, q, position)


def make_faulty(devices):
    return _make(devices, ("data",))  # FAULT


def make_fixed(devices):
    return _make(devices, ("data", None, "model"))
