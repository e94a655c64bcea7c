# mypy: ignore-errors
"""Fault: replicated. The decode server splits its KV cache only by batch, so each of the four chips of a tensor-parallel
group holds all KV heads although the heads of the projections are split; the cache is four times as large as needed."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class Config:
    layers: int = 4
    d_model: int = 2048
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    d_ff: int = 5632
    vocab: int = 32_768
    slots: int = 32
    max_len: int = 3072


class Layout:
    """Where weights, cache and activations of the server live."""

    def __init__(self, devices, shard_kv_heads):
        self.mesh = Mesh(np.array(devices).reshape(4, 4), ("batch", "tensor"))
        self.column = P(None, None, "tensor")
        self.row = P(None, "tensor", None)
        self.tokens = P("batch")
        if shard_kv_heads:
            self.cache = P(None, "batch", None, "tensor", None)
        else:
            self.cache = P(None, "batch", None, None, None)  # FAULT

    def named(self, spec):
        return NamedSharding(self.mesh, spec)

    def struct(self, shape, dtype, spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=self.named(spec))


def weights(cfg, lay):
    L, d = cfg.layers, cfg.d_model
    bf = jnp.bfloat16
    return {
        "embed": lay.struct((cfg.vocab, d), bf, P("tensor", None)),
        "layers": {
            "wq": lay.struct((L, d, cfg.heads * cfg.head_dim), bf, lay.column),
            "wk": lay.struct((L, d, cfg.kv_heads * cfg.head_dim), bf, lay.column),
            "wv": lay.struct((L, d, cfg.kv_heads * cfg.head_dim), bf, lay.column),
            "wo": lay.struct((L, cfg.heads * cfg.head_dim, d), bf, lay.row),
            "gate": lay.struct((L, d, cfg.d_ff), bf, lay.column),
            "up": lay.struct((L, d, cfg.d_ff), bf, lay.column),
            "down": lay.struct((L, cfg.d_ff, d), bf, lay.row),
            "norm1": lay.struct((L, d), bf, P()),
            "norm2": lay.struct((L, d), bf, P()),
        },
    }


def rms(x, g):
    v = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * lax.rsqrt(v + 1e-6).astype(x.dtype)) * g


def attend(cfg, q, k, v, length):
    group = cfg.heads // cfg.kv_heads
    q = q.reshape(q.shape[0], cfg.kv_heads, group, cfg.head_dim)
    s = jnp.einsum("bkgd,btkd->bkgt", q, k, preferred_element_type=jnp.float32) * cfg.head_dim**-0.5
    live = jnp.arange(k.shape[1])[None, :] <= length[:, None]
    s = jnp.where(live[:, None, None, :], s, -1e30)
    p = jax.nn.softmax(s, axis=-1).astype(v.dtype)
    return jnp.einsum("bkgt,btkd->bkgd", p, v).reshape(q.shape[0], -1)


def make_decode(cfg, lay):
    def write(cache, new, pos):
        return jax.vmap(lambda c, n, i: lax.dynamic_update_slice_in_dim(c, n[None], i, axis=0))(cache, new, pos)

    def layer(x, w, kc, vc, pos):
        h = rms(x, w["norm1"])
        q = h @ w["wq"]
        k = (h @ w["wk"]).reshape(-1, cfg.kv_heads, cfg.head_dim)
        v = (h @ w["wv"]).reshape(-1, cfg.kv_heads, cfg.head_dim)
        kc, vc = write(kc, k, pos), write(vc, v, pos)
        x = x + attend(cfg, q, kc, vc, pos) @ w["wo"]
        h = rms(x, w["norm2"])
        return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"], kc, vc

    def decode(params, cache, token, pos):
        x = params["embed"][token]
        ks, vs = cache["k"], cache["v"]
        for i in range(cfg.layers):
            w = jax.tree.map(lambda a: a[i], params["layers"])
            x, k, v = layer(x, w, ks[i], vs[i], pos)
            ks, vs = ks.at[i].set(k), vs.at[i].set(v)
        logits = jnp.einsum("bd,vd->bv", x, params["embed"], preferred_element_type=jnp.float32)
        return {"k": ks, "v": vs}, jnp.argmax(logits, -1), pos + 1

    c = lay.named(lay.cache)
    t = lay.named(lay.tokens)
    return jax.jit(decode, donate_argnums=1, out_shardings=({"k": c, "v": c}, t, t))


def serve(devices, shard_kv_heads):
    cfg = Config()
    lay = Layout(devices, shard_kv_heads)
    shape = (cfg.layers, cfg.slots, cfg.max_len, cfg.kv_heads, cfg.head_dim)
    cache = {n: lay.struct(shape, jnp.bfloat16, lay.cache) for n in ("k", "v")}
    token = lay.struct((cfg.slots,), jnp.int32, lay.tokens)
    return make_decode(cfg, lay), (weights(cfg, lay), cache, token, token)


def make_faulty(devices):
    return serve(devices, shard_kv_heads=False)


def make_fixed(devices):
    return serve(devices, shard_kv_heads=True)
