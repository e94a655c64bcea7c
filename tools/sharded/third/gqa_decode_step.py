# mypy: ignore-errors
"""Fault: replicated. One step of grouped-query decoding on 4 x 4 chips; the KV cache follows the batch only and repeats over the four chips of `tp`."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclass(frozen=True)
class Config:
    layers: int = 6
    dim: int = 2048
    heads: int = 16
    kv_heads: int = 4
    head_dim: int = 128
    hidden: int = 5632
    vocab: int = 32000
    batch: int = 32
    length: int = 2048


CFG = Config()


def weight_specs():
    return {
        "q": ((CFG.dim, CFG.heads, CFG.head_dim), P(None, "tp")),
        "k": ((CFG.dim, CFG.kv_heads, CFG.head_dim), P(None, "tp")),
        "v": ((CFG.dim, CFG.kv_heads, CFG.head_dim), P(None, "tp")),
        "o": ((CFG.heads, CFG.head_dim, CFG.dim), P("tp")),
        "gate": ((CFG.dim, CFG.hidden), P(None, "tp")),
        "up": ((CFG.dim, CFG.hidden), P(None, "tp")),
        "down": ((CFG.hidden, CFG.dim), P("tp")),
    }


def cache_spec_batch_only():
    return P("dp", None, None, None)  # FAULT


def cache_spec():
    return P("dp", None, "tp", None)


def rms(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6).astype(x.dtype)


def attend(w, x, cache, pos):
    b = x.shape[0]
    q = jnp.einsum("bd,dhk->bhk", x, w["q"]).reshape(b, CFG.kv_heads, -1, CFG.head_dim)
    put = lambda c, new: jax.lax.dynamic_update_slice(c, new[:, None], (0, pos, 0, 0))
    k = put(cache["k"], jnp.einsum("bd,dhk->bhk", x, w["k"]))
    v = put(cache["v"], jnp.einsum("bd,dhk->bhk", x, w["v"]))
    s = jnp.einsum("bhgk,bthk->bhgt", q, k).astype(jnp.float32) * CFG.head_dim**-0.5
    s = jnp.where(jnp.arange(CFG.length) <= pos, s, -1e30)
    o = jnp.einsum("bhgt,bthk->bhgk", jax.nn.softmax(s).astype(x.dtype), v)
    return jnp.einsum("bhk,hkd->bd", o.reshape(b, CFG.heads, CFG.head_dim), w["o"]), {"k": k, "v": v}


def decode(params, caches, token, pos):
    x = params["embed"][token]
    fresh = []
    for w, cache in zip(params["layers"], caches):
        y, cache = attend(w, rms(x), cache, pos)
        x = x + y
        h = rms(x)
        x = x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
        fresh.append(cache)
    return jnp.argmax(rms(x) @ params["embed"].T, -1), fresh


def build(devices, spec):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("dp", "tp"))
    bf16 = lambda shape, spec: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, spec))
    params = {
        "embed": bf16((CFG.vocab, CFG.dim), P("tp")),
        "layers": [{n: bf16(*ss) for n, ss in weight_specs().items()} for _ in range(CFG.layers)],
    }
    one = (CFG.batch, CFG.length, CFG.kv_heads, CFG.head_dim)
    caches = [{n: bf16(one, spec) for n in "kv"} for _ in range(CFG.layers)]  # FAULT
    token = jax.ShapeDtypeStruct((CFG.batch,), jnp.int32, sharding=NamedSharding(mesh, P("dp")))
    pos = jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, P()))
    outs = (token.sharding, jax.tree.map(lambda s: s.sharding, caches))
    return partial(jax.jit, donate_argnums=1, out_shardings=outs)(decode), (params, caches, token, pos)


def make_faulty(devices):
    return build(devices, cache_spec_batch_only())  # FAULT


def make_fixed(devices):
    return build(devices, cache_spec())
