# mypy: ignore-errors
"""Clean. Each layer's weights are gathered within the rematerialised body of the scan, again in the backward pass.

In-context learner for tables: rows attend to labelled rows. Fully sharded training inside one shard_map.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

DEPTH, WIDTH, HEADS, HIDDEN = 16, 768, 12, 3072
TABLES, ROWS, COLUMNS, CLASSES = 8, 256, 100, 10

SHAPES = {
    "qkv": (DEPTH, WIDTH, 3 * WIDTH),
    "out": (DEPTH, WIDTH, WIDTH),
    "up": (DEPTH, WIDTH, HIDDEN),
    "down": (DEPTH, HIDDEN, WIDTH),
}
ENDS = {"read_x": (COLUMNS, WIDTH), "read_y": (CLASSES, WIDTH), "answer": (WIDTH, CLASSES)}
LABELLED = ROWS // 2


def gather(shards, axis):
    """Whole weights in half precision out of their shards."""
    return {k: jax.lax.all_gather(w.astype(jnp.bfloat16), "z", axis=axis, tiled=True) for k, w in shards.items()}


def norm(x):
    y = x.astype(jnp.float32)
    y = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5)
    return y.astype(x.dtype)


def block(x, w):
    tables, rows, _ = x.shape
    q, k, v = jnp.split((norm(x) @ w["qkv"]).reshape(tables, rows, HEADS, -1), 3, axis=-1)
    att = jax.nn.dot_product_attention(q, k[:, :LABELLED], v[:, :LABELLED])
    x = x + att.reshape(tables, rows, WIDTH) @ w["out"]
    return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"]


def loss_of(layers, ends, features, labels):
    ends = {k: w.astype(jnp.bfloat16) for k, w in ends.items()}
    known = jnp.where(jnp.arange(ROWS) < LABELLED, 1.0, 0.0).astype(jnp.bfloat16)
    x = features.astype(jnp.bfloat16) @ ends["read_x"] + ends["read_y"][labels] * known[:, None]

    @jax.checkpoint
    def body(x, w):
        return block(x, gather(w, axis=0)), None

    x, _ = jax.lax.scan(body, x, layers)
    logits = (norm(x[:, LABELLED:]) @ ends["answer"]).astype(jnp.float32)
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, labels[:, LABELLED:])
    return nll.mean()


def make_fixed(devices):
    mesh = Mesh(np.asarray(devices).reshape(-1), ("z",))
    tx = optax.sgd(3e-4, momentum=0.9)

    def local(layers, ends, features, labels):
        loss, (g_layers, g_ends) = jax.value_and_grad(loss_of, argnums=(0, 1))(layers, ends, features, labels)
        n = jax.lax.axis_size("z")
        g_layers = jax.tree.map(lambda g: g / n, g_layers)
        return jax.lax.pmean(loss, "z"), g_layers, jax.lax.pmean(g_ends, "z")

    split, whole, batch = P(None, "z"), P(), P("z")
    grads = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(split, whole, batch, batch),
        out_specs=(whole, split, whole),
        check_vma=False,
    )

    def step(params, state, features, labels):
        loss, g_layers, g_ends = grads(params["layers"], params["ends"], features, labels)
        updates, state = tx.update({"layers": g_layers, "ends": g_ends}, state, params)
        return optax.apply_updates(params, updates), state, loss

    def array(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    params = {
        "layers": {k: array(s, split) for k, s in SHAPES.items()},
        "ends": {k: array(s, whole) for k, s in ENDS.items()},
    }
    state = (optax.TraceState(trace=params), optax.EmptyState())
    state = jax.tree.unflatten(jax.tree.structure(jax.eval_shape(tx.init, params)), jax.tree.leaves(state))
    batch_args = (array((TABLES, ROWS, COLUMNS), batch), array((TABLES, ROWS), batch, jnp.int32))
    return jax.jit(step, donate_argnums=(0, 1)), (params, state, *batch_args)
