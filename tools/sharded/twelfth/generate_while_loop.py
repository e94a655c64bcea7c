# mypy: ignore-errors
"""Clean. Greedy generation in a while loop; a multi-query cache that is divided over the batch
on one mesh axis and over the context on the other, and donated."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Config:
    layers: int = 8
    dim: int = 1024
    heads: int = 8
    head_dim: int = 128
    ffn: int = 4096
    vocab: int = 32768
    batch: int = 64
    context: int = 1024


AXES = {
    "batch": "data",
    "context": "model",
    "heads": "model",
    "ffn": "model",
    "vocab": "model",
}

LOGICAL = {
    "embed": ("vocab", None),
    "wq": (None, None, "heads", None),
    "wk": (None, None, None),
    "wv": (None, None, None),
    "wo": (None, "heads", None, None),
    "up": (None, None, "ffn"),
    "down": (None, "ffn", None),
    "cache": (None, "batch", "context", None),
    "rows": ("batch",),
    "out": ("batch", None),
}


def spec_of(name):
    return P(*(AXES.get(axis) for axis in LOGICAL[name]))


def norm(x):
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)


def one_token(params, caches, token, at, cfg):
    x = params["embed"][token]
    visible = jnp.arange(cfg.context) <= at

    def layer(carry, scanned):
        x, k_all, v_all = carry
        i, w = scanned
        h = norm(x)
        q = jnp.einsum("bd,dhk->bhk", h, w["wq"])
        here = (i, 0, at, 0)
        k_all = jax.lax.dynamic_update_slice(k_all, (h @ w["wk"])[None, :, None], here)
        v_all = jax.lax.dynamic_update_slice(v_all, (h @ w["wv"])[None, :, None], here)
        k = jax.lax.dynamic_index_in_dim(k_all, i, keepdims=False)
        v = jax.lax.dynamic_index_in_dim(v_all, i, keepdims=False)
        scores = jnp.einsum("bhk,bck->bhc", q, k) * cfg.head_dim**-0.5
        scores = jnp.where(visible, scores, -1e9)
        mixed = jnp.einsum("bhc,bck->bhk", jax.nn.softmax(scores), v)
        x = x + jnp.einsum("bhk,hkd->bd", mixed, w["wo"])
        x = x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"]
        return (x, k_all, v_all), None

    layers = {n: w for n, w in params.items() if n != "embed"}
    (x, *caches), _ = jax.lax.scan(layer, (x, *caches), (jnp.arange(cfg.layers), layers))
    return jnp.argmax(norm(x) @ params["embed"].T, axis=-1).astype(jnp.int32), caches


def make_clean(devices):
    cfg = Config()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))

    def struct(name, dtype, *shape):
        sharding = NamedSharding(mesh, spec_of(name))
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

    n, d, bf16 = cfg.layers, cfg.dim, jnp.bfloat16
    params = {
        "embed": struct("embed", bf16, cfg.vocab, d),
        "wq": struct("wq", bf16, n, d, cfg.heads, cfg.head_dim),
        "wk": struct("wk", bf16, n, d, cfg.head_dim),
        "wv": struct("wv", bf16, n, d, cfg.head_dim),
        "wo": struct("wo", bf16, n, cfg.heads, cfg.head_dim, d),
        "up": struct("up", bf16, n, d, cfg.ffn),
        "down": struct("down", bf16, n, cfg.ffn, d),
    }
    cache = [struct("cache", bf16, n, cfg.batch, cfg.context, cfg.head_dim) for _ in "kv"]
    token = struct("rows", jnp.int32, cfg.batch)
    written = struct("out", jnp.int32, cfg.batch, 128)

    def generate(params, cache, token, written, start):
        def more(carry):
            step, token, _, _ = carry
            return (step < written.shape[1]) & jnp.any(token != 1)

        def body(carry):
            step, token, written, cache = carry
            token, cache = one_token(params, cache, token, start + step, cfg)
            written = jax.lax.dynamic_update_slice(written, token[:, None], (0, step))
            return step + 1, token, written, cache

        first = (jnp.int32(0), token, written, cache)
        _, token, text, cache = jax.lax.while_loop(more, body, first)
        return cache, token, text

    outs = ([c.sharding for c in cache], token.sharding, written.sharding)
    fn = jax.jit(generate, donate_argnums=(1, 2, 3), out_shardings=outs)
    start = jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, P()))
    return fn, (params, cache, token, written, start)
