# mypy: ignore-errors
"""Fault: replicated. The query n-gram table, the largest of the model, is listed with an empty spec beside row-split
peers, so that every device holds all of it, and its Adagrad accumulator and gradient as well."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class Table:
    rows: int
    dim: int = 64
    bag: int = 1


TABLES = {
    "user_id": Table(240_000),
    "user_country": Table(256),
    "query_ngram": Table(320_000, bag=8),
    "item_id": Table(240_000),
    "item_category": Table(1024, bag=2),
}

# Tables of a few hundred rows stay whole: looking them up needs no communication.
TABLE_SPECS = {
    "user_id": P("x", None),
    "user_country": P(),
    "query_ngram": P("x", None),
    "item_id": P("x", None),
    "item_category": P(),
}

USER_SIDE = ("user_id", "user_country", "query_ngram")
ITEM_SIDE = ("item_id", "item_category")
HIDDEN = 256
OUT = 64


def tower_shapes(names):
    width = sum(TABLES[n].dim for n in names)
    return {"w0": (width, HIDDEN), "b0": (HIDDEN,), "w1": (HIDDEN, OUT)}


def tower(p, features):
    h = jax.nn.relu(features @ p["w0"] + p["b0"])
    out = h @ p["w1"]
    return out / (jnp.linalg.norm(out, axis=-1, keepdims=True) + 1e-6)


def lookup(tables, ids, names):
    pooled = [jnp.mean(jnp.take(tables[n], ids[n], axis=0), axis=1) for n in names]
    return jnp.concatenate(pooled, axis=-1)


def in_batch_softmax(params, ids):
    u = tower(params["user"], lookup(params["tables"], ids, USER_SIDE))
    v = tower(params["item"], lookup(params["tables"], ids, ITEM_SIDE))
    scores = u @ v.T / 0.07
    labels = jnp.arange(scores.shape[0])
    picked = jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(scores, axis=-1) - picked)


def adagrad(params, acc, grads, lr=0.02):
    acc = jax.tree.map(lambda a, g: a + g * g, acc, grads)
    params = jax.tree.map(lambda p, a, g: p - lr * g * jax.lax.rsqrt(a + 1e-8), params, acc, grads)
    return params, acc


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("x",))
    whole = NamedSharding(mesh, P())
    batch_sharding = NamedSharding(mesh, P("x", None))
    batch = 4096

    def arr(shape, sharding, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    params = {
        "tables": {n: arr((t.rows, t.dim), NamedSharding(mesh, TABLE_SPECS[n])) for n, t in TABLES.items()},
        "user": {k: arr(s, whole) for k, s in tower_shapes(USER_SIDE).items()},
        "item": {k: arr(s, whole) for k, s in tower_shapes(ITEM_SIDE).items()},
    }
    acc = params
    ids = {n: arr((batch, t.bag), batch_sharding, jnp.int32) for n, t in TABLES.items()}
    shardings = jax.tree.map(lambda a: a.sharding, params)

    def step(params, acc, ids):
        loss, grads = jax.value_and_grad(in_batch_softmax)(params, ids)
        grads = jax.lax.with_sharding_constraint(grads, shardings)
        params, acc = adagrad(params, acc, grads)
        return params, acc, loss

    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=(shardings, shardings, whole))
    return jitted, (params, acc, ids)
