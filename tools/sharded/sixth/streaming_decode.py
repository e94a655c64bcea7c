# mypy: ignore-errors
"""Fault: donated. The prefix cache arrives split by batch and is donated, but the decode loop returns it split by heads, so the
donated buffers cannot be updated in place and the cache exists twice."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclass(frozen=True)
class Spec:
    layers: int = 6
    dim: int = 512
    heads: int = 8
    ff: int = 2048
    vocab: int = 8192
    batch: int = 64
    context: int = 1024
    new_tokens: int = 8

    @property
    def head_dim(self):
        return self.dim // self.heads


CACHE_BY_BATCH = P(None, "dp", None, None, None)
CACHE_BY_HEADS = P(None, None, "dp", None, None)


class KVCache:
    """[layer, batch, head, time, dim] for keys and values."""

    @staticmethod
    def struct(spec, sharding):
        shape = (spec.layers, spec.batch, spec.heads, spec.context, spec.head_dim)
        return {n: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding) for n in ("k", "v")}

    @staticmethod
    def append(buf, layer, new, t):
        return lax.dynamic_update_slice(buf, new[None, :, :, None, :], (layer, 0, 0, t, 0))


def norm(x):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def decode_one(spec, w, cache, token, t):
    x = w["embed"][token]
    k_all, v_all = cache["k"], cache["v"]
    live = jnp.arange(spec.context) <= t
    for i in range(spec.layers):
        p = w["layers"][i]
        q, k, v = jnp.split((norm(x) @ p["qkv"]).reshape(-1, spec.heads, 3 * spec.head_dim), 3, -1)
        k_all, v_all = KVCache.append(k_all, i, k, t), KVCache.append(v_all, i, v, t)
        s = jnp.einsum("bhd,bhtd->bht", q, k_all[i]) * spec.head_dim**-0.5
        a = jax.nn.softmax(jnp.where(live, s, -1e30), -1)
        x = x + jnp.einsum("bht,bhtd->bhd", a, v_all[i]).reshape(-1, spec.dim) @ p["out"]
        x = x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]
    return {"k": k_all, "v": v_all}, jnp.argmax(norm(x) @ w["embed"].T, -1).astype(jnp.int32)


def make_generate(spec):
    def generate(w, cache, token, start):
        def tick(carry, i):
            cache, token = carry
            cache, token = decode_one(spec, w, cache, token, start + i)
            return (cache, token), token

        (cache, token), out = lax.scan(tick, (cache, token), jnp.arange(spec.new_tokens))
        return cache, token, out.T

    return generate


def build(devices, cache_out):
    spec = Spec()
    mesh = Mesh(np.array(devices), ("dp",))
    rep = NamedSharding(mesh, P())
    rows = NamedSharding(mesh, P("dp"))

    def weight(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=rep)

    d = spec.dim
    w = {
        "embed": weight(spec.vocab, d),
        "layers": [{"qkv": weight(d, 3 * d), "out": weight(d, d), "up": weight(d, spec.ff),
                    "down": weight(spec.ff, d)} for _ in range(spec.layers)],
    }
    cache = KVCache.struct(spec, NamedSharding(mesh, CACHE_BY_BATCH))
    token = jax.ShapeDtypeStruct((spec.batch,), jnp.int32, sharding=rows)
    start = jax.ShapeDtypeStruct((), jnp.int32, sharding=rep)
    out = NamedSharding(mesh, cache_out)
    fn = jax.jit(make_generate(spec), donate_argnums=(1,), out_shardings=({"k": out, "v": out}, rows, rows))
    return fn, (w, cache, token, start)


def make_faulty(devices):
    return build(devices, cache_out=CACHE_BY_HEADS)  # FAULT


def make_fixed(devices):
    return build(devices, cache_out=CACHE_BY_BATCH)
