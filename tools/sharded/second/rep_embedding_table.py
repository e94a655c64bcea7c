# mypy: ignore-errors
"""Fault: replicated. A recommender on four chips: the tower's weights are split, the item table (the largest array) is whole on every chip."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
ITEMS, DIM = 400_000, 128


def score(table, tower, history, candidates):
    h = table[history].mean(1)
    for w in tower:
        h = jax.nn.relu(h @ w)
    return jnp.einsum("bd,bcd->bc", h, table[candidates])


def train_step(table, tower, history, candidates, clicked):
    def loss(table, tower):
        s = score(table, tower, history, candidates)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(s), clicked[:, None], 1))

    gt, gw = jax.grad(loss, (0, 1))(table, tower)
    return table - 0.1 * gt, [w - 0.1 * g for w, g in zip(tower, gw)]


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("chips",))
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("chips"))
    table = jax.ShapeDtypeStruct((ITEMS, DIM), jnp.float32, sharding=whole)  # FAULT
    tower = [jax.ShapeDtypeStruct((DIM, 1024), jnp.float32, sharding=NamedSharding(mesh, P(None, "chips"))), jax.ShapeDtypeStruct((1024, DIM), jnp.float32, sharding=rows)]
    ids = lambda *s: jax.ShapeDtypeStruct(s, jnp.int32, sharding=rows)
    step = jax.jit(train_step, donate_argnums=(0, 1), out_shardings=(whole, [w.sharding for w in tower]))
    return step, (table, tower, ids(4096, 20), ids(4096, 8), ids(4096))


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("chips",))
    rows = NamedSharding(mesh, P("chips"))
    table = jax.ShapeDtypeStruct((ITEMS, DIM), jnp.float32, sharding=rows)
    tower = [jax.ShapeDtypeStruct((DIM, 1024), jnp.float32, sharding=NamedSharding(mesh, P(None, "chips"))), jax.ShapeDtypeStruct((1024, DIM), jnp.float32, sharding=rows)]
    ids = lambda *s: jax.ShapeDtypeStruct(s, jnp.int32, sharding=rows)
    step = jax.jit(train_step, donate_argnums=(0, 1), out_shardings=(rows, [w.sharding for w in tower]))
    return step, (table, tower, ids(4096, 20), ids(4096, 8), ids(4096))
