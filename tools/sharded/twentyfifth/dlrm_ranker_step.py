# mypy: ignore-errors
"""Fault: replicated. Tables are judged "too small to split" by their number of rows alone, so the query-embedding
table, which has few rows but very wide ones, lies whole on every chip, and its Adagrad accumulator and gradient too.

One training step of a DLRM-like click ranker: sparse features from embedding tables, pairwise interactions,
a top MLP, Adagrad.
"""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

BATCH = 16_384
DENSE_FEATURES = 13
INTERACTION_DIM = 128
REPLICATE_BELOW = 200_000  # FAULT


@dataclass(frozen=True)
class Feature:
    name: str
    rows: int
    dim: int


FEATURES = (
    Feature("user", 4_194_304, 64),
    Feature("item", 2_097_152, 128),
    Feature("query", 131_072, 512),
    Feature("category", 4_096, 64),
    Feature("hour_of_week", 168, 16),
)


def table_spec(feature):
    """Big tables are split by rows; tiny ones are cheaper to keep on every chip."""
    if feature.rows < REPLICATE_BELOW:  # FAULT
        return P()
    return P("shard", None)


def param_specs():
    return {
        "tables": {f.name: table_spec(f) for f in FEATURES},
        "project": {f.name: P() for f in FEATURES},
        "bottom": P(),
        "top": [P(), P(), P()],
    }


def param_shapes():
    pairs = (len(FEATURES) + 1) * len(FEATURES) // 2
    f32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    return {
        "tables": {f.name: f32(f.rows, f.dim) for f in FEATURES},
        "project": {f.name: f32(f.dim, INTERACTION_DIM) for f in FEATURES},
        "bottom": f32(DENSE_FEATURES, INTERACTION_DIM),
        "top": [f32(pairs + INTERACTION_DIM, 512), f32(512, 256), f32(256, 1)],
    }


def predict(params, batch):
    dense = jax.nn.relu(batch["dense"] @ params["bottom"])
    vectors = [dense]
    for feature in FEATURES:
        rows = params["tables"][feature.name].at[batch["ids"][feature.name]].get(mode="clip")
        vectors.append(rows @ params["project"][feature.name])
    stacked = jnp.stack(vectors, axis=1)
    gram = jnp.einsum("bfd,bgd->bfg", stacked, stacked)
    upper, lower = np.triu_indices(stacked.shape[1], k=1)
    h = jnp.concatenate([dense, gram[:, upper, lower]], axis=-1)
    for w in params["top"][:-1]:
        h = jax.nn.relu(h @ w)
    return (h @ params["top"][-1])[:, 0]


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(16), ("shard",))
    optimizer = optax.adagrad(0.02)

    def named(spec):
        return NamedSharding(mesh, spec)

    def loss_fn(params, batch):
        return optax.sigmoid_binary_cross_entropy(predict(params, batch), batch["click"]).mean()

    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    shapes = param_shapes()
    shardings = jax.tree.map(named, param_specs(), is_leaf=lambda x: isinstance(x, P))
    state_shapes = jax.eval_shape(optimizer.init, shapes)
    state_shardings = optax.tree_map_params(
        optimizer, lambda _, s: s, state_shapes, shardings, transform_non_params=lambda _: named(P()))

    def placed(tree, where):
        return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, where)

    by_example = named(P("shard"))
    batch = {
        "dense": jax.ShapeDtypeStruct((BATCH, DENSE_FEATURES), jnp.float32, sharding=by_example),
        "ids": {f.name: jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=by_example) for f in FEATURES},
        "click": jax.ShapeDtypeStruct((BATCH,), jnp.float32, sharding=by_example),
    }
    step = jax.jit(train_step, out_shardings=(shardings, state_shardings, named(P())), donate_argnums=(0, 1))
    return step, (placed(shapes, shardings), placed(state_shapes, state_shardings), batch)
