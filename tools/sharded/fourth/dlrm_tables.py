# mypy: ignore-errors
"""Fault: replicated. The rule for embedding tables names the id features one by one and misses the ad table,
which falls through to the catch-all and is whole on every device (as are its Adagrad accumulators)."""
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

TABLES = {
    "user_id": 262144,
    "item_id": 196608,
    "query_id": 131072,
    "ad_id": 163840,
    "country": 256,
}
DIM = 32
DENSE_FEATURES = 64
BATCH = 4096

PARTITION_RULES = [
    (r"tables/(user|item|query)_id", P(("data", "model"), None)),  # FAULT
    (r"tables/country", P()),
    (r"(bottom|top)/\d+/kernel", P(None, "model")),
    (r".*", P()),
]

FIXED_RULES = [(r"tables/\w+_id", P(("data", "model"), None))] + PARTITION_RULES[1:]


def path_name(path):
    return "/".join(str(getattr(k, "key", getattr(k, "idx", k))) for k in path)


def match_rules(rules, tree):
    def find(path, leaf):
        if leaf.ndim == 0:
            return P()
        for pattern, spec in rules:
            if re.search(pattern, path_name(path)):
                return spec
        raise ValueError(path_name(path))

    return jax.tree_util.tree_map_with_path(find, tree)


def init_shapes():
    f32 = jnp.float32
    n_vec = len(TABLES) + 1
    inter = n_vec * (n_vec - 1) // 2 + DIM

    def mlp(sizes):
        return [
            {"kernel": jax.ShapeDtypeStruct((i, o), f32), "bias": jax.ShapeDtypeStruct((o,), f32)}
            for i, o in zip(sizes[:-1], sizes[1:])
        ]

    return {
        "tables": {k: jax.ShapeDtypeStruct((rows, DIM), f32) for k, rows in TABLES.items()},
        "bottom": mlp([DENSE_FEATURES, 256, DIM]),
        "top": mlp([inter, 256, 4]),
    }


def apply_mlp(layers, x):
    for i, layer in enumerate(layers):
        x = x @ layer["kernel"] + layer["bias"]
        if i + 1 < len(layers):
            x = jax.nn.relu(x)
    return x


def forward(params, batch):
    dense = apply_mlp(params["bottom"], batch["dense"])
    vecs = [jnp.take(params["tables"][k], batch["ids"][k], axis=0) for k in TABLES]
    z = jnp.stack([dense] + vecs, axis=1)
    dots = jnp.einsum("bnd,bmd->bnm", z, z)
    i, j = np.tril_indices(z.shape[1], k=-1)
    feats = jnp.concatenate([dots[:, i, j], dense], axis=1)
    return apply_mlp(params["top"], feats).mean(axis=-1)


def loss_fn(params, batch):
    logits = forward(params, batch)
    labels = batch["label"]
    return jnp.mean(jnp.maximum(logits, 0) - logits * labels + jnp.log1p(jnp.exp(-jnp.abs(logits))))


def adagrad_step(params, accum, batch):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    accum = jax.tree.map(lambda a, g: a + g * g, accum, grads)
    params = jax.tree.map(lambda p, a, g: p - 0.02 * g * jax.lax.rsqrt(a + 1e-8), params, accum, grads)
    return params, accum, loss


def build(rules, devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("data", "model"))
    shapes = init_shapes()
    shardings = jax.tree.map(lambda spec: NamedSharding(mesh, spec), match_rules(rules, shapes))
    params = jax.tree.map(lambda s, sh: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sh), shapes, shardings)  # FAULT
    by_row = NamedSharding(mesh, P("data"))
    batch = {
        "dense": jax.ShapeDtypeStruct((BATCH, DENSE_FEATURES), jnp.float32, sharding=by_row),
        "ids": {k: jax.ShapeDtypeStruct((BATCH,), jnp.int32, sharding=by_row) for k in TABLES},
        "label": jax.ShapeDtypeStruct((BATCH,), jnp.float32, sharding=by_row),
    }
    step = jax.jit(
        adagrad_step, donate_argnums=(0, 1), out_shardings=(shardings, shardings, NamedSharding(mesh, P()))
    )
    return step, (params, params, batch)


def make_faulty(devices):
    return build(PARTITION_RULES, devices)


def make_fixed(devices):
    return build(FIXED_RULES, devices)
