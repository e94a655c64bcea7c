# mypy: ignore-errors
"""Fault: dropped. The user table has one more row than a round number (the unknown id), the eight devices do not divide it,
and `table_spec` then falls back to replication: table, gradient and Adagrad accumulator are whole on each device."""
from typing import NamedTuple
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

DIM = 64
SMALL = 4096  # tables up to this many rows are kept on every device
DENSE = 13
BATCH = 4096


class Feature(NamedTuple):
    name: str
    cardinality: int
    hot: int


FEATURES = (
    Feature("user", 300_000, 1),
    Feature("item", 199_999, 20),
    Feature("advertiser", 65_535, 1),
    Feature("city", 3_999, 1),
    Feature("device", 63, 1),
)


def num_rows(feature):
    return feature.cardinality + 1  # FAULT


def table_spec(mesh, rows):
    if rows <= SMALL or rows % mesh.size:
        return P()  # FAULT
    return P("shard", None)


def init_shapes():
    tables = {f.name: (num_rows(f), DIM) for f in FEATURES}
    pairs = (len(FEATURES) + 1) * len(FEATURES) // 2
    sizes = {"bottom": [DENSE, 512, 256, DIM], "top": [pairs + DIM, 512, 256, 1]}
    mlps = {k: [{"w": (i, o), "b": (o,)} for i, o in zip(s, s[1:])] for k, s in sizes.items()}
    return {"tables": tables, **mlps}


def mlp(layers, x):
    for n, layer in enumerate(layers):
        x = x @ layer["w"] + layer["b"]
        if n + 1 < len(layers):
            x = jax.nn.relu(x)
    return x


def predict(params, dense, ids, by_row):
    vectors = [mlp(params["bottom"], dense)]
    for f in FEATURES:
        rows = jnp.take(params["tables"][f.name], ids[f.name], axis=0, mode="clip")
        vectors.append(jax.lax.with_sharding_constraint(rows.mean(1), by_row))
    stacked = jnp.stack(vectors, 1)
    dots = jnp.einsum("bid,bjd->bij", stacked, stacked)
    i, j = np.tril_indices(len(vectors), -1)
    return mlp(params["top"], jnp.concatenate([vectors[0], dots[:, i, j]], -1))[:, 0]


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("shard",))
    by_row, whole = NamedSharding(mesh, P("shard")), NamedSharding(mesh, P())
    shapes = init_shapes()
    is_shape = lambda s: isinstance(s, tuple)
    shardings = {
        "tables": {k: NamedSharding(mesh, table_spec(mesh, s[0])) for k, s in shapes["tables"].items()},
        "bottom": jax.tree.map(lambda s: whole, shapes["bottom"], is_leaf=is_shape),
        "top": jax.tree.map(lambda s: whole, shapes["top"], is_leaf=is_shape),
    }
    params = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.float32), shapes, is_leaf=is_shape)
    tx = optax.adagrad(0.02)
    opt = jax.eval_shape(tx.init, params)
    opt_shardings = optax.tree_map_params(tx, lambda _, s: s, opt, shardings, transform_non_params=lambda _: whole)

    def step(params, opt, batch):
        def loss_fn(p):
            logits = predict(p, batch["dense"], batch["ids"], by_row)
            return optax.sigmoid_binary_cross_entropy(logits, batch["click"]).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    batch = {
        "dense": jax.ShapeDtypeStruct((BATCH, DENSE), jnp.float32),
        "ids": {f.name: jax.ShapeDtypeStruct((BATCH, f.hot), jnp.int32) for f in FEATURES},
        "click": jax.ShapeDtypeStruct((BATCH,), jnp.float32),
    }
    fn = jax.jit(step, in_shardings=(shardings, opt_shardings, by_row),
                 out_shardings=(shardings, opt_shardings, whole), donate_argnums=(0, 1))
    return fn, (params, opt, batch)
