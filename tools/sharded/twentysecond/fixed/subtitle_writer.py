# mypy: ignore-errors
"""Clean. Only the attention outputs are saved by name; each layer's weights are gathered again in the backward pass.

Subtitle writer: a decoder over video clip features, fully sharded parameters, layers as a Python loop.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

LAYERS, DIM, HEADS, FFN, VOCAB = 8, 768, 12, 3072, 8192
BATCH, WORDS, CLIPS, FEATURES = 16, 128, 64, 512

SAVED = ("attended",)


def layer_shapes():
    return {
        "self_qkv": (DIM, 3 * DIM),
        "self_out": (DIM, DIM),
        "cross_q": (DIM, DIM),
        "cross_kv": (FEATURES, 2 * DIM),
        "cross_out": (DIM, DIM),
        "up": (DIM, FFN),
        "down": (FFN, DIM),
    }


def shapes():
    layers = [layer_shapes() for _ in range(LAYERS)]
    return {"words": (VOCAB, DIM), "places": (WORDS, DIM), "layers": layers}


def rms(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6)


def make_loss(mesh):
    whole = NamedSharding(mesh, P())
    rows = NamedSharding(mesh, P("fsdp"))

    def fetch(w):
        return checkpoint_name(jax.lax.with_sharding_constraint(w, whole), "fetched")

    def heads(x, n):
        return jnp.split(x.reshape(*x.shape[:2], -1, DIM // HEADS), n, axis=2)

    @functools.partial(
        jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names(*SAVED)
    )
    def layer(p, x, clips):
        w = jax.tree.map(fetch, p)
        q, k, v = heads(rms(x) @ w["self_qkv"], 3)
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
        x = x + checkpoint_name(y, "attended") @ w["self_out"]
        (q,) = heads(rms(x) @ w["cross_q"], 1)
        k, v = heads(clips @ w["cross_kv"], 2)
        y = jax.nn.dot_product_attention(q, k, v).reshape(x.shape)
        x = x + checkpoint_name(y, "attended") @ w["cross_out"]
        x = x + jax.nn.relu(rms(x) @ w["up"]) ** 2 @ w["down"]
        return jax.lax.with_sharding_constraint(x, rows)

    @jax.checkpoint
    def head(words, x, targets):
        logits = jax.lax.with_sharding_constraint(rms(x) @ jax.lax.with_sharding_constraint(words, whole).T, rows)
        picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)

    def loss(params, words, clips):
        x = jax.lax.with_sharding_constraint(params["words"], whole)[words[:, :-1]] + params["places"]
        x = jax.lax.with_sharding_constraint(x, rows)
        for p in params["layers"]:
            x = layer(p, x, clips)
        return head(params["words"], x, words[:, 1:])

    return loss


def make_fixed(devices):
    mesh = Mesh(np.asarray(devices), ("fsdp",))
    loss_fn = make_loss(mesh)
    split = NamedSharding(mesh, P("fsdp"))
    params = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s, jnp.float32, sharding=split),
        shapes(),
        is_leaf=lambda s: isinstance(s, tuple),
    )

    def step(params, words, clips):
        loss, grads = jax.value_and_grad(loss_fn)(params, words, clips)
        grads = jax.lax.with_sharding_constraint(grads, split)
        return jax.tree.map(lambda p, g: p - 1e-2 * jnp.sign(g), params, grads), loss

    words = jax.ShapeDtypeStruct((BATCH, WORDS + 1), jnp.int32, sharding=split)
    clips = jax.ShapeDtypeStruct((BATCH, CLIPS, FEATURES), jnp.float32, sharding=split)
    out = (split, NamedSharding(mesh, P()))
    return jax.jit(step, donate_argnums=0, out_shardings=out), (params, words, clips)
