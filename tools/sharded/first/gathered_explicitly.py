# mypy: ignore-errors
"""Fault: gathered. A scan gathers its weights by a constraint, and keeps them as residuals."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "cpu"
WIDTH, LAYERS, BATCH = 512, 8, 1024


def _make(devices, is_kept):
    mesh = Mesh(np.array(devices), ("data",))
    split = NamedSharding(mesh, P(None, "data"))
    whole = NamedSharding(mesh, P())

    def block(h, w):
        w = jax.lax.with_sharding_constraint(w, whole)  # FAULT
        return h + jax.numpy.tanh(h @ w), None  # FAULT

    def train_step(params, x):
        body = block if is_kept else jax.checkpoint(block)

        def loss(params):
            return (jax.lax.scan(body, x, params)[0] ** 2).mean()

        return params - 0.1 * jax.grad(loss)(params)

    params = S((LAYERS, WIDTH, WIDTH), "float32", sharding=split)
    x = S((BATCH, WIDTH), "float32", sharding=NamedSharding(mesh, P("data")))
    return jax.jit(train_step, donate_argnums=0, out_shardings=split), (params, x)


def make_faulty(devices):
    return _make(devices, True)  # FAULT


def make_fixed(devices):
    return _make(devices, False)
