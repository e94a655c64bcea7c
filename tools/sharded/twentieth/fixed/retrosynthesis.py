# mypy: ignore-errors
"""Clean. The moments are split by their second last axis, with or without a leading axis of layers, as their
parameters are.

Single-step retrosynthesis: a prefix language model over SMILES strings (product ">>" reactants), the layers
stacked and scanned, parameters split over all eight devices (fully sharded data parallelism).
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

CONFIG = {"vocab": 1024, "width": 512, "layers": 8, "heads": 8, "mlp": 2048, "length": 192, "batch": 32}


def init(key, c=CONFIG):
    keys = iter(jax.random.split(key, 8))

    def dense(*shape):
        return jax.random.normal(next(keys), shape) * shape[-2] ** -0.5

    n, d, f = c["layers"], c["width"], c["mlp"]
    return {
        "tokens": dense(c["vocab"], d),
        "positions": dense(c["length"], d),
        "blocks": {
            "qkv": dense(n, d, 3 * d),
            "mix": dense(n, d, d),
            "up": dense(n, d, f),
            "down": dense(n, f, d),
            "scale_a": jnp.ones((n, d)),
            "scale_b": jnp.ones((n, d)),
        },
        "scale": jnp.ones((d,)),
    }


def parameter_sharding(mesh, params):
    """Rows over all devices; a leading layer axis stays whole, since the scan walks along it."""

    def choose(path, leaf):
        stacked = path[0].key == "blocks"
        if leaf.ndim - stacked < 2:
            return NamedSharding(mesh, P())
        return NamedSharding(mesh, P(None, "shard") if stacked else P("shard"))

    return jax.tree_util.tree_map_with_path(choose, params)


def moment_sharding(mesh, opt_state):
    def choose(leaf):
        split = leaf.ndim >= 2 and leaf.shape[-2] % mesh.size == 0
        return NamedSharding(mesh, P(*(None,) * (leaf.ndim - 2), "shard") if split else P())

    return jax.tree.map(choose, opt_state)


def normal(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def block(x, w, mask):
    b, t, d = x.shape
    qkv = normal(x, w["scale_a"]) @ w["qkv"]
    q, k, v = (a.reshape(b, t, CONFIG["heads"], -1) for a in jnp.split(qkv, 3, axis=-1))
    x = x + jax.nn.dot_product_attention(q, k, v, mask=mask).reshape(b, t, d) @ w["mix"]
    return x + jax.nn.gelu(normal(x, w["scale_b"]) @ w["up"]) @ w["down"]


def prefix_mask(product_length, length):
    """Everything sees the product; reactants see what was written before them."""
    at = jnp.arange(length)
    causal = at[None, :] <= at[:, None]
    return (causal[None] | (at[None, None, :] < product_length[:, None, None]))[:, None]


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("shard",))
    by_row, whole = NamedSharding(mesh, P("shard")), NamedSharding(mesh, P())
    schedule = optax.warmup_cosine_decay_schedule(0.0, 4e-4, 2_000, 200_000)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.98))

    def loss_fn(params, smiles, product_length):
        mask = prefix_mask(product_length, smiles.shape[1])
        x = params["tokens"][smiles] + params["positions"]

        @jax.checkpoint
        def body(x, w):
            w = jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, whole), w)
            return jax.lax.with_sharding_constraint(block(x, w, mask), by_row), None

        x, _ = jax.lax.scan(body, jax.lax.with_sharding_constraint(x, by_row), params["blocks"])
        logits = normal(x, params["scale"]) @ params["tokens"].T
        losses = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], smiles[:, 1:])
        counted = jnp.arange(1, smiles.shape[1])[None] >= product_length[:, None]
        return jnp.sum(losses * counted) / jnp.sum(counted)

    params = jax.eval_shape(init, jax.random.key(0))
    opt_state = jax.eval_shape(tx.init, params)
    p_shard, o_shard = parameter_sharding(mesh, params), moment_sharding(mesh, opt_state)

    def update(params, opt_state, smiles, product_length):
        loss, grads = jax.value_and_grad(loss_fn)(params, smiles, product_length)
        grads = jax.lax.with_sharding_constraint(grads, p_shard)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    step = jax.jit(
        update,
        in_shardings=(p_shard, o_shard, by_row, by_row),
        out_shardings=(p_shard, o_shard, whole),
        donate_argnums=(0, 1),
    )
    smiles = jax.ShapeDtypeStruct((CONFIG["batch"], CONFIG["length"]), jnp.int32)
    product_length = jax.ShapeDtypeStruct((CONFIG["batch"],), jnp.int32)
    return step, (params, opt_state, smiles, product_length)
