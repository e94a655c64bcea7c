# mypy: ignore-errors
"""Clean. Megatron-style prefill: weights and caches are split along the model axis, the residual stream is replicated along it as usual."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclass(frozen=True)
class Arch:
    layers: int = 12
    d: int = 2048
    q_heads: int = 16
    kv_heads: int = 8
    hd: int = 128
    ff: int = 8192
    vocab: int = 32_000
    batch: int = 16
    seq: int = 1024


LOGICAL = {"batch": "data", "heads": "model", "kv": "model", "ff": "model", "vocab": "model"}


class Sharding:
    def __init__(self, mesh):
        self.mesh = mesh

    def __call__(self, *names):
        return NamedSharding(self.mesh, P(*(LOGICAL.get(n) for n in names)))

    def pin(self, x, *names):
        return jax.lax.with_sharding_constraint(x, self(*names))


def rms(x, g):
    return (x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6)).astype(x.dtype) * g


def make_prefill(a, sh):
    def body(x, w):
        h = rms(x, w["n1"])
        q = sh.pin(jnp.einsum("bsd,dhk->bshk", h, w["q"]), "batch", None, "heads", None)
        k = sh.pin(jnp.einsum("bsd,dhk->bshk", h, w["k"]), "batch", None, "kv", None)
        v = sh.pin(jnp.einsum("bsd,dhk->bshk", h, w["v"]), "batch", None, "kv", None)
        o = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = sh.pin(x + jnp.einsum("bshk,hkd->bsd", o, w["o"]), "batch", None, None)
        h = rms(x, w["n2"])
        f = sh.pin(jax.nn.silu(h @ w["gate"]) * (h @ w["up"]), "batch", None, "ff")
        return sh.pin(x + f @ w["down"], "batch", None, None), {"k": k, "v": v}

    def prefill(params, tokens, lengths):
        x = sh.pin(params["embed"][tokens], "batch", None, None)
        x, cache = jax.lax.scan(body, x, params["layers"])
        cache = jax.tree.map(lambda c: sh.pin(c, None, "batch", None, "kv", None), cache)
        last = jnp.take_along_axis(x, (lengths - 1)[:, None, None], axis=1)[:, 0]
        logits = sh.pin(jnp.einsum("bd,vd->bv", last, params["embed"]), "batch", "vocab")
        return jnp.argmax(logits, -1), cache

    return prefill


def make_clean(devices):
    a = Arch()
    sh = Sharding(Mesh(np.array(devices).reshape(4, 4), ("data", "model")))

    def weight(shape, *names):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sh(*names))

    n = a.layers
    params = {
        "embed": weight((a.vocab, a.d), "vocab", None),
        "layers": {
            "q": weight((n, a.d, a.q_heads, a.hd), None, None, "heads"),
            "k": weight((n, a.d, a.kv_heads, a.hd), None, None, "kv"),
            "v": weight((n, a.d, a.kv_heads, a.hd), None, None, "kv"),
            "o": weight((n, a.q_heads, a.hd, a.d), None, "heads"),
            "gate": weight((n, a.d, a.ff), None, None, "ff"),
            "up": weight((n, a.d, a.ff), None, None, "ff"),
            "down": weight((n, a.ff, a.d), None, "ff"),
            "n1": weight((n, a.d)), "n2": weight((n, a.d)),
        },
    }
    tokens = jax.ShapeDtypeStruct((a.batch, a.seq), jnp.int32, sharding=sh("batch"))
    lengths = jax.ShapeDtypeStruct((a.batch,), jnp.int32, sharding=sh("batch"))
    kv = sh(None, "batch", None, "kv", None)
    fn = jax.jit(make_prefill(a, sh), out_shardings=(sh("batch"), {"k": kv, "v": kv}))
    return fn, (params, tokens, lengths)
