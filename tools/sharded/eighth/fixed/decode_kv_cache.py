# mypy: ignore-errors
"""Fault: donated. The cache is donated split by slot and head, but the decoding step returns it split by slot alone, so that
its buffers cannot be reused: both caches are held at once, the new one four times as large."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class ServeConfig:
    layers: int = 8
    dim: int = 1024
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    ff: int = 4096
    vocab: int = 32_768
    slots: int = 32
    context: int = 1024


def weight_table(c):
    """name -> (shape, spec)"""
    n = c.layers
    return {
        "embed": ((c.vocab, c.dim), P("tp", None)),
        "wq": ((n, c.dim, c.heads, c.head_dim), P(None, None, "tp", None)),
        "wkv": ((n, 2, c.dim, c.kv_heads, c.head_dim), P(None, None, None, "tp", None)),
        "wo": ((n, c.heads, c.head_dim, c.dim), P(None, "tp", None, None)),
        "up": ((n, c.dim, c.ff), P(None, None, "tp")),
        "down": ((n, c.ff, c.dim), P(None, "tp", None)),
    }


# (layer, slot, position, kv head, feature)
CACHE = P(None, "dp", None, "tp", None)


def rms(x):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def write(cache, new, lengths):
    return jax.vmap(lambda c, n, i: jax.lax.dynamic_update_slice(c, n[None], (i, 0, 0)))(cache, new, lengths)


def attend(q, k, v, lengths):
    s, t, g, d = k.shape
    q = q.reshape(s, g, -1, d)
    scores = jnp.einsum("sgqd,stgd->sgqt", q, k).astype(jnp.float32) * d**-0.5
    scores = jnp.where(jnp.arange(t)[None, None, None] <= lengths[:, None, None, None], scores, -1e30)
    out = jnp.einsum("sgqt,stgd->sgqd", jax.nn.softmax(scores).astype(q.dtype), v)
    return out.reshape(s, -1, d)


def decode_step(weights, cache, tokens, lengths):
    x = weights["embed"][tokens]

    def layer(carry, lw):
        x, ck, cv = carry
        w, i = lw
        y = rms(x)
        q = jnp.einsum("sd,dhk->shk", y, w["wq"])
        nk, nv = jnp.einsum("sd,cdgk->csgk", y, w["wkv"])
        k, v = write(ck[i], nk, lengths), write(cv[i], nv, lengths)
        x = x + jnp.einsum("shk,hkd->sd", attend(q, k, v, lengths), w["wo"])
        x = x + jax.nn.silu(rms(x) @ w["up"]) @ w["down"]
        return (x, ck.at[i].set(k), cv.at[i].set(v)), None

    per_layer = {k: v for k, v in weights.items() if k != "embed"}
    layers = jnp.arange(cache["k"].shape[0])
    (x, k, v), _ = jax.lax.scan(layer, (x, cache["k"], cache["v"]), (per_layer, layers))
    logits = rms(x) @ weights["embed"].T
    return {"k": k, "v": v}, jnp.argmax(logits, axis=-1).astype(jnp.int32), lengths + 1


def make_fixed(devices):
    c = ServeConfig()
    mesh = Mesh(np.array(devices).reshape(4, 4), ("dp", "tp"))

    def named(spec):
        return NamedSharding(mesh, spec)

    def struct(shape, spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=named(spec))

    weights = {k: struct(shape, spec) for k, (shape, spec) in weight_table(c).items()}
    shape = (c.layers, c.slots, c.context, c.kv_heads, c.head_dim)
    cache = {"k": struct(shape, CACHE), "v": struct(shape, CACHE)}
    row = struct((c.slots,), P("dp"), jnp.int32)
    fn = jax.jit(
        decode_step,
        donate_argnums=(1, 2, 3),
        out_shardings=({"k": named(CACHE), "v": named(CACHE)}, row.sharding, row.sharding),
    )
    return fn, (weights, cache, row, row)
