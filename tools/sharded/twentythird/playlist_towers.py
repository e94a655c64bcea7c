# mypy: ignore-errors
"""Fault: optimizer. The rules are anchored at the start of the path, and the optimizer's paths begin with its own
fields, so no rule meets the moments of the embedding tables and they fall to P().

Training step of a two-tower recommender for playlists (tracks and listeners) with in-batch negatives and AdamW; the
layouts of the parameters and of the optimizer state come from one table of rules.
"""
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

CONFIG = {
    "tracks": 1 << 20,
    "listeners": 1 << 19,
    "dim": 64,
    "hidden": 1024,
    "history": 32,
    "batch": 1024,
    "temperature": 0.05,
}

RULES = [
    (r"(tracks|listeners)/table", P(("data", "rows"), None)),
    (r"(query|item)_tower/\d+/kernel", P(None, "rows")),
    (r"(query|item)_tower/\d+/bias", P("rows")),
]


def name_of(path):
    return "/".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path)


def spec_for(path, leaf):
    name = name_of(path)
    for pattern, spec in RULES:
        if re.match(pattern, name) and len(spec) <= leaf.ndim:  # FAULT
            return spec
    return P()


def layout(mesh, tree):
    return jax.tree_util.tree_map_with_path(lambda path, leaf: NamedSharding(mesh, spec_for(path, leaf)), tree)


def init(key, config):
    a, b, c, d = jax.random.split(key, 4)
    dim, hidden = config["dim"], config["hidden"]

    def tower(key):
        first, second = jax.random.split(key)
        return [
            {"kernel": jax.random.normal(first, (dim, hidden)) * 0.05, "bias": jnp.zeros((hidden,))},
            {"kernel": jax.random.normal(second, (hidden, dim)) * 0.05, "bias": jnp.zeros((dim,))},
        ]

    return {
        "tracks": {"table": jax.random.normal(a, (config["tracks"], dim)) * 0.05},
        "listeners": {"table": jax.random.normal(b, (config["listeners"], dim)) * 0.05},
        "query_tower": tower(c),
        "item_tower": tower(d),
    }


def run_tower(layers, x):
    for index, layer in enumerate(layers):
        x = x @ layer["kernel"] + layer["bias"]
        if index + 1 < len(layers):
            x = jax.nn.relu(x)
    return x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-6)


def loss_fn(params, batch, config):
    history = jnp.take(params["tracks"]["table"], batch["history"], axis=0)
    listener = jnp.take(params["listeners"]["table"], batch["listener"], axis=0)
    query = run_tower(params["query_tower"], listener + history.mean(axis=1))
    item = run_tower(params["item_tower"], jnp.take(params["tracks"]["table"], batch["next"], axis=0))
    logits = query @ item.T / config["temperature"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.arange(logits.shape[0])).mean()


def make_faulty(devices):
    config = CONFIG
    mesh = Mesh(np.asarray(devices).reshape(4, 4), ("data", "rows"))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, weight_decay=1e-5))

    params = jax.eval_shape(lambda key: init(key, config), jax.random.key(0))
    state = jax.eval_shape(optimizer.init, params)
    params_layout = layout(mesh, params)
    state_layout = layout(mesh, state)  # FAULT

    def step(params, state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch, config)
        grads = jax.lax.with_sharding_constraint(grads, params_layout)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    def place(tree, shardings):
        return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, shardings)

    rows = NamedSharding(mesh, P("data"))
    size = config["batch"]
    batch = {
        "history": jax.ShapeDtypeStruct((size, config["history"]), jnp.int32, sharding=rows),
        "listener": jax.ShapeDtypeStruct((size,), jnp.int32, sharding=rows),
        "next": jax.ShapeDtypeStruct((size,), jnp.int32, sharding=rows),
    }
    jitted = jax.jit(
        step,
        out_shardings=(params_layout, state_layout, NamedSharding(mesh, P())),
        donate_argnums=(0, 1),
    )
    return jitted, (place(params, params_layout), place(state, state_layout), batch)
