# mypy: ignore-errors
"""Fault: optimizer. The rules for the optimizer state only follow "mu" and "nu"; the accumulated gradients of optax.MultiSteps match neither and stay whole on all sixteen chips."""
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

ITEMS, DIM, HIDDEN, FIELDS, BATCH = 65536, 128, 2048, 26, 1024

PARAM_RULES = [
    (r"tables$", P(("data", "model"), None)),
    (r"dense_in$", P("data", "model")),
    (r"dense_mid$", P("data", "model")),
    (r"dense_out$", P()),
    (r".*", P()),
]

MOMENTS = re.compile(r"\.(mu|nu|acc_grads)\b")


def spec_for(path):
    return next(spec for pattern, spec in PARAM_RULES if re.search(pattern, path))


def param_spec(path, _):
    return spec_for(jax.tree_util.keystr(path, simple=True, separator="/"))


def opt_spec(path, _):
    if not MOMENTS.search(jax.tree_util.keystr(path)):
        return P()
    return spec_for(jax.tree_util.keystr(path[-1:], simple=True))


def optimizer():
    inner = optax.adamw(1e-3, weight_decay=1e-5)
    return optax.MultiSteps(inner, every_k_schedule=4).gradient_transformation()


def click_model(params, ids):
    vectors = params["tables"][ids]
    x = vectors.reshape(ids.shape[0], FIELDS * DIM)
    x = jax.nn.relu(x @ params["dense_in"])
    x = jax.nn.relu(x @ params["dense_mid"])
    return (x @ params["dense_out"])[:, 0]


def make_step(tx):
    def loss_fn(params, ids, clicked):
        logits = click_model(params, ids)
        return optax.sigmoid_binary_cross_entropy(logits, clicked).mean()

    def step(params, opt_state, ids, clicked):
        loss, grads = jax.value_and_grad(loss_fn)(params, ids, clicked)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return step


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    tx = optimizer()
    shapes = {
        "tables": (ITEMS, DIM),
        "dense_in": (FIELDS * DIM, HIDDEN),
        "dense_mid": (HIDDEN, HIDDEN),
        "dense_out": (HIDDEN, 1),
    }
    params = {n: jax.ShapeDtypeStruct(s, jnp.float32) for n, s in shapes.items()}
    opt_state = jax.eval_shape(tx.init, params)

    def place(tree, rule):
        def one(path, leaf):
            sharding = NamedSharding(mesh, rule(path, leaf))
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

        return jax.tree_util.tree_map_with_path(one, tree)

    params, opt_state = place(params, param_spec), place(opt_state, opt_spec)
    rows = NamedSharding(mesh, P("data"))
    ids = jax.ShapeDtypeStruct((BATCH, FIELDS), jnp.int32, sharding=rows)
    clicked = jax.ShapeDtypeStruct((BATCH,), jnp.float32, sharding=rows)
    out = jax.tree.map(lambda a: a.sharding, (params, opt_state))
    step = jax.jit(
        make_step(tx),
        donate_argnums=(0, 1),
        out_shardings=(*out, NamedSharding(mesh, P())),
    )
    return step, (params, opt_state, ids, clicked)
