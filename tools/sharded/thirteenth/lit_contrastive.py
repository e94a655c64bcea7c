# mypy: ignore-errors
"""Fault: replicated. Both sides of the similarity matrix are gathered, so every chip computes the whole batch x batch logits instead of its own rows."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.lax import with_sharding_constraint as wsc
from jax.sharding import Mesh, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

BATCH, TEXT_LEN, VOCAB = 8192, 32, 16384
WIDTH, HEADS, DEPTH, EMB, IMG = 256, 4, 4, 512, 1024
ROWS = ("replica", "fsdp")


def init(key):
    """Text tower and projection; image features come from a locked tower, computed offline."""
    keys = iter(jax.random.split(key, 64))
    w = lambda *s: jax.random.normal(next(keys), s) * s[-2] ** -0.5
    layer = lambda: {"qkv": w(WIDTH, 3 * WIDTH), "out": w(WIDTH, WIDTH), "up": w(WIDTH, 4 * WIDTH), "down": w(4 * WIDTH, WIDTH)}
    return {
        "tok": w(VOCAB, WIDTH),
        "pos": w(TEXT_LEN, WIDTH),
        "layers": [layer() for _ in range(DEPTH)],
        "text_proj": w(WIDTH, EMB),
        "image_proj": w(IMG, EMB),
        "scale": jnp.float32(2.3),
    }


def spec_of(x):
    return P("fsdp") if x.ndim == 2 and x.shape[0] >= WIDTH else P()


def norm(x):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)


@jax.checkpoint
def text_layer(x, w):
    b, t, _ = x.shape
    q, k, v = (a.reshape(b, t, HEADS, -1) for a in jnp.split(norm(x) @ w["qkv"].astype(x.dtype), 3, -1))
    s = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * (WIDTH // HEADS) ** -0.5)
    x = x + jnp.einsum("bhqk,bkhd->bqhd", s, v).reshape(b, t, -1) @ w["out"].astype(x.dtype)
    x = x + jax.nn.gelu(norm(x) @ w["up"].astype(x.dtype)) @ w["down"].astype(x.dtype)
    return wsc(x, P(ROWS))


def unit(x):
    return x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-6)


def encode_text(params, ids):
    x = wsc((params["tok"][ids] + params["pos"]).astype(jnp.bfloat16), P(ROWS))
    for layer in params["layers"]:
        x = text_layer(x, layer)
    return unit(norm(x).mean(1).astype(jnp.float32) @ params["text_proj"])


def contrastive_loss(params, batch):
    text = encode_text(params, batch["ids"])
    image = unit(batch["image"].astype(jnp.float32) @ params["image_proj"])
    text = wsc(text, P(None, None))
    image = wsc(image, P(None, None))  # FAULT
    logits = jnp.exp(params["scale"]) * image @ text.T  # FAULT
    match = jnp.sum(image * text, -1) * jnp.exp(params["scale"])
    by_image = jax.nn.logsumexp(logits, axis=1) - match
    by_text = jax.nn.logsumexp(logits, axis=0) - match
    return 0.5 * (by_image.mean() + by_text.mean())


def train_step(tx, params, opt_state, batch):
    loss, grads = jax.value_and_grad(contrastive_loss)(params, batch)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(2, 8), ("replica", "fsdp"))
    jax.set_mesh(mesh)
    tx = optax.adamw(1e-3, weight_decay=1e-4)
    params = jax.eval_shape(lambda: init(jax.random.key(0)))
    opt_state = jax.eval_shape(tx.init, params)
    specs = jax.tree.map(spec_of, (params, opt_state))
    step = jax.jit(functools.partial(train_step, tx), in_shardings=(*specs, P(ROWS)), out_shardings=(*specs, P()),
                   donate_argnums=(0, 1))
    batch = {"ids": jax.ShapeDtypeStruct((BATCH, TEXT_LEN), jnp.int32), "image": jax.ShapeDtypeStruct((BATCH, IMG), jnp.bfloat16)}
    return step, (params, opt_state, batch)
