# mypy: ignore-errors
"""Fault: reshard. Going from sequence-split to head-split attention, the layout table sends the tokens through a stage
that is whole along `sp`, so each chip gathers all tokens of all heads before it keeps its own heads."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

BATCH, FRAMES, PATCHES, HEADS, HEAD_DIM = 32, 16, 512, 16, 64
DIM = HEADS * HEAD_DIM

STAGES = {
    "tokens": P("dp", "sp", None),
    "qkv_local": P("dp", "sp", None, None),
    "qkv_joined": P("dp", None, None, None),  # FAULT
    "qkv_heads": P("dp", None, "sp", None),
}
TO_HEADS = ("qkv_local", "qkv_joined", "qkv_heads")  # FAULT
TO_TOKENS = ("qkv_heads", "qkv_local")


def through(mesh, x, stages):
    for stage in stages:
        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, STAGES[stage]))
    return x


def blockwise(q, k, v, chunk=128):
    """Attention over keys in chunks with a running softmax."""
    b, t, h, d = q.shape
    ks = k.reshape(b, t // chunk, chunk, h, d).swapaxes(0, 1)
    vs = v.reshape(b, t // chunk, chunk, h, d).swapaxes(0, 1)

    def step(carry, kv):
        top, norm, acc = carry
        s = jnp.einsum("bqhd,bkhd->bhqk", q, kv[0]).astype(jnp.float32) * d**-0.5
        new = jnp.maximum(top, s.max(-1))
        p = jnp.exp(s - new[..., None])
        scale = jnp.exp(top - new)
        acc = acc * scale[..., None] + jnp.einsum("bhqk,bkhd->bhqd", p.astype(q.dtype), kv[1])
        return (new, norm * scale + p.sum(-1), acc), None

    start = (
        jnp.full((b, h, t), -jnp.inf, jnp.float32),
        jnp.zeros((b, h, t), jnp.float32),
        jnp.zeros((b, h, t, d), jnp.float32),
    )
    (_, norm, acc), _ = jax.lax.scan(step, start, (ks, vs))
    return (acc / norm[..., None]).astype(q.dtype).swapaxes(1, 2)


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("dp", "sp"))
    tokens = NamedSharding(mesh, STAGES["tokens"])

    def attention_layer(weights, x):
        b, t, _ = x.shape
        y = x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6).astype(x.dtype)
        q, k, v = (
            through(mesh, (y @ weights[n]).reshape(b, t, HEADS, HEAD_DIM), TO_HEADS) for n in ("q", "k", "v")
        )
        out = through(mesh, blockwise(q, k, v), TO_TOKENS)
        return x + out.reshape(b, t, DIM) @ weights["o"]

    weights = {
        n: jax.ShapeDtypeStruct((DIM, DIM), jnp.bfloat16, sharding=NamedSharding(mesh, P()))
        for n in ("q", "k", "v", "o")
    }
    x = jax.ShapeDtypeStruct((BATCH, FRAMES * PATCHES, DIM), jnp.bfloat16, sharding=tokens)
    return jax.jit(attention_layer, donate_argnums=1, out_shardings=tokens), (weights, x)
