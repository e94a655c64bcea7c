# mypy: ignore-errors
"""Clean. Two-tower contrastive training with ZeRO-1: parameters are replicated by choice, moments and the batch are split."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

DIM, FF, DEPTH, HEADS, EMB = 768, 3072, 3, 12, 512
BATCH, PATCHES, PATCH_DIM, WORDS, VOCAB = 128, 196, 768, 64, 8192


def tower(front):
    block = {"qkv": (DIM, 3 * DIM), "out": (DIM, DIM), "up": (DIM, FF), "down": (FF, DIM)}
    return {"front": front, "blocks": {k: (DEPTH, *s) for k, s in block.items()}, "proj": (DIM, EMB)}


def shapes():
    return {"image": tower((PATCH_DIM, DIM)), "text": tower((VOCAB, DIM)), "temp": ()}


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def trunk(x, p):
    @jax.checkpoint
    def body(x, w):
        w = jax.tree.map(lambda a: a.astype(jnp.bfloat16), w)
        b, s, d = x.shape
        q, k, v = jnp.split((norm(x) @ w["qkv"]).reshape(b, s, HEADS, -1), 3, -1)
        x = x + jax.nn.dot_product_attention(q, k, v).reshape(b, s, d) @ w["out"]
        return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"], None

    x, _ = jax.lax.scan(body, x.astype(jnp.bfloat16), p["blocks"])
    z = x.mean(1).astype(jnp.float32) @ p["proj"]
    return z / jnp.linalg.norm(z, axis=-1, keepdims=True)


def loss_fn(params, batch):
    zi = trunk(batch["patches"] @ params["image"]["front"], params["image"])
    zt = trunk(params["text"]["front"][batch["words"]], params["text"])
    logits = jnp.exp(params["temp"]) * zi @ zt.T
    labels = jnp.arange(logits.shape[0])
    ce = optax.softmax_cross_entropy_with_integer_labels
    return 0.5 * (ce(logits, labels).mean() + ce(logits.T, labels).mean())


def zero1(mesh, leaf):
    for i, n in enumerate(leaf.shape):
        if leaf.ndim > 1 and n % mesh.size == 0:
            return NamedSharding(mesh, P(*(None,) * i, "dp"))
    return NamedSharding(mesh, P())


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("dp",))
    rep, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("dp"))
    tx = optax.adamw(1e-3)
    params = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.float32, sharding=rep), shapes(),
                          is_leaf=lambda s: isinstance(s, tuple))
    opt = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=zero1(mesh, a)),
                       jax.eval_shape(tx.init, params))
    moment_sharding = jax.tree.map(lambda a: zero1(mesh, a), params)

    def step(params, opt, batch):
        loss, g = jax.value_and_grad(loss_fn)(params, batch)
        g = jax.tree.map(jax.lax.with_sharding_constraint, g, moment_sharding)
        mine = jax.tree.map(jax.lax.with_sharding_constraint, params, moment_sharding)
        updates, opt = tx.update(g, opt, mine)
        return optax.apply_updates(params, updates), opt, loss

    batch = {"patches": jax.ShapeDtypeStruct((BATCH, PATCHES, PATCH_DIM), jnp.float32, sharding=rows),
             "words": jax.ShapeDtypeStruct((BATCH, WORDS), jnp.int32, sharding=rows)}
    out = (jax.tree.map(lambda a: a.sharding, params), jax.tree.map(lambda a: a.sharding, opt), rep)
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=out), (params, opt, batch)
