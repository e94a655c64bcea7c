# mypy: ignore-errors
"""Fault: donated. The decode step constrains the updated cache on the batch only while the donated cache comes in
split over batch and heads, so the buffers cannot be reused and a second, larger cache is made."""
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    layers: int = 4
    d_model: int = 1024
    q_heads: int = 16
    kv_heads: int = 8
    head_dim: int = 64
    d_ff: int = 4096
    vocab: int = 32000
    batch: int = 32
    max_len: int = 4096
    cache_axes: tuple = ("data", None, "model", None)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class KVCache:
    k: list
    v: list
    length: jax.Array


def rms_norm(x, g):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6)).astype(x.dtype) * g


def write(cache, new, length):
    return jax.lax.dynamic_update_slice(cache, new.astype(cache.dtype), (0, length, 0, 0))


def attend(cfg, q, k, v, length):
    b = q.shape[0]
    q = q.reshape(b, cfg.kv_heads, cfg.q_heads // cfg.kv_heads, cfg.head_dim)
    scores = jnp.einsum("bhgd,bshd->bhgs", q, k).astype(jnp.float32) * cfg.head_dim**-0.5
    valid = jnp.arange(cfg.max_len) <= length
    probs = jax.nn.softmax(jnp.where(valid, scores, -1e30), axis=-1).astype(q.dtype)
    return jnp.einsum("bhgs,bshd->bhgd", probs, v).reshape(b, cfg.q_heads * cfg.head_dim)


def decode_step(cfg, mesh, params, cache, token):
    def keep(x):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*cfg.cache_axes)))  # FAULT

    x = params["embed"][token]
    new_k, new_v = [], []
    for p, k, v in zip(params["layers"], cache.k, cache.v):
        h = rms_norm(x, p["norm1"])
        q = h @ p["wq"]
        kv = (h @ p["wkv"]).reshape(-1, 2, cfg.kv_heads, cfg.head_dim)
        k = keep(write(k, kv[:, None, 0], cache.length))  # FAULT
        v = keep(write(v, kv[:, None, 1], cache.length))  # FAULT
        x = x + attend(cfg, q, k, v, cache.length) @ p["wo"]
        h = rms_norm(x, p["norm2"])
        x = x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
        new_k.append(k)
        new_v.append(v)
    logits = rms_norm(x, params["norm"]) @ params["embed"].T
    next_token = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    return next_token, KVCache(new_k, new_v, cache.length + 1)


def structs(cfg, mesh):
    def w(shape, *spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    d, f = cfg.d_model, cfg.d_ff
    layer = {
        "norm1": w((d,)),
        "norm2": w((d,)),
        "wq": w((d, cfg.q_heads * cfg.head_dim), None, "model"),
        "wkv": w((d, 2 * cfg.kv_heads * cfg.head_dim), None, "model"),
        "wo": w((cfg.q_heads * cfg.head_dim, d), "model", None),
        "gate": w((d, f), None, "model"),
        "up": w((d, f), None, "model"),
        "down": w((f, d), "model", None),
    }
    params = {"embed": w((cfg.vocab, d), "model", None), "norm": w((d,)), "layers": [dict(layer) for _ in range(cfg.layers)]}
    page = w((cfg.batch, cfg.max_len, cfg.kv_heads, cfg.head_dim), "data", None, "model", None)
    cache = KVCache([page] * cfg.layers, [page] * cfg.layers, w((), dtype=jnp.int32))
    return params, cache, w((cfg.batch,), "data", dtype=jnp.int32)


def build(cfg, devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    fn = jax.jit(partial(decode_step, cfg, mesh), donate_argnums=(1,))
    return fn, structs(cfg, mesh)


def make_faulty(devices):
    return build(DecoderConfig(cache_axes=("data", None, None, None)), devices)  # FAULT


def make_fixed(devices):
    return build(DecoderConfig(), devices)
