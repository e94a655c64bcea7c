# mypy: ignore-errors
"""Clean. The decode step returns the key/value cache in the layout in which it is donated.

One token of a serving engine: grouped-query attention against a static cache, greedy sampling,
dataclass configuration, weights in bfloat16 with tensor parallelism over "model".
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class EngineConfig:
    layers: int = 6
    width: int = 1024
    q_heads: int = 16
    kv_heads: int = 4
    head_dim: int = 128
    hidden: int = 2816
    vocab: int = 32_000
    slots: int = 16
    context: int = 2048

    @property
    def cache_shape(self) -> tuple[int, ...]:
        return (self.layers, self.slots, self.context, self.kv_heads, self.head_dim)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class DecodeState:
    k: jax.Array
    v: jax.Array
    lengths: jax.Array
    tokens: jax.Array


# one layer of the cache, (slots, context, kv_heads, head_dim), as the attention works on it
LAYER_CACHE = P("data", None, "model", None)


def stacked(spec: P) -> P:
    """Spec of a per-layer value once the layer axis is put in front."""
    return P(None, *spec)


def rms(x, scale):
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)
    return (y * scale).astype(x.dtype)


def rope(x, positions):
    half = x.shape[-1] // 2
    freq = 10_000.0 ** (-jnp.arange(half) / half)
    ang = positions[:, None, None] * freq
    a, b = x[..., :half], x[..., half:]
    cos, sin = jnp.cos(ang).astype(x.dtype), jnp.sin(ang).astype(x.dtype)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attend(cfg, q, k, v, lengths):
    group = cfg.q_heads // cfg.kv_heads
    q = q.reshape(cfg.slots, cfg.kv_heads, group, cfg.head_dim)
    logits = jnp.einsum("bkgd,bskd->bkgs", q, k, preferred_element_type=jnp.float32)
    visible = jnp.arange(cfg.context)[None, :] <= lengths[:, None]
    logits = jnp.where(visible[:, None, None], logits * cfg.head_dim**-0.5, -1e30)
    probs = jax.nn.softmax(logits, axis=-1).astype(v.dtype)
    return jnp.einsum("bkgs,bskd->bkgd", probs, v).reshape(cfg.slots, -1)


def layer_step(cfg, lengths, h, xs):
    w, k_cache, v_cache = xs
    y = rms(h, w["ln1"])
    q = rope((y @ w["wq"]).reshape(cfg.slots, cfg.q_heads, cfg.head_dim), lengths)
    k = rope((y @ w["wk"]).reshape(cfg.slots, cfg.kv_heads, cfg.head_dim), lengths)
    v = (y @ w["wv"]).reshape(cfg.slots, cfg.kv_heads, cfg.head_dim)
    write = jax.vmap(lambda cache, new, at: jax.lax.dynamic_update_slice(cache, new[None], (at, 0, 0)))
    k_cache, v_cache = write(k_cache, k, lengths), write(v_cache, v, lengths)
    h = h + attend(cfg, q, k_cache, v_cache, lengths) @ w["wo"]
    y = rms(h, w["ln2"])
    h = h + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"]
    return h, (k_cache, v_cache)


def decode(cfg, weights, state):
    h = weights["embed"][state.tokens]
    body = functools.partial(layer_step, cfg, state.lengths)
    h, (k, v) = jax.lax.scan(body, h, (weights["layers"], state.k, state.v))
    logits = (rms(h, weights["norm"]) @ weights["head"]).astype(jnp.float32)
    tokens = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    return DecodeState(k=k, v=v, lengths=state.lengths + 1, tokens=tokens)


def weight_table(cfg):
    n, d, f = cfg.layers, cfg.width, cfg.hidden
    q, kv = cfg.q_heads * cfg.head_dim, cfg.kv_heads * cfg.head_dim
    column, row = P(None, None, "model"), P(None, "model", None)
    return {
        "embed": ((cfg.vocab, d), P(None, "model")),
        "head": ((d, cfg.vocab), P(None, "model")),
        "norm": ((d,), P()),
        "layers": {
            "ln1": ((n, d), P()),
            "ln2": ((n, d), P()),
            "wq": ((n, d, q), column),
            "wk": ((n, d, kv), column),
            "wv": ((n, d, kv), column),
            "wo": ((n, q, d), row),
            "gate": ((n, d, f), column),
            "up": ((n, d, f), column),
            "down": ((n, f, d), row),
        },
    }


def make_fixed(devices):
    cfg = EngineConfig()
    mesh = Mesh(np.asarray(devices).reshape(2, 2), ("data", "model"))
    on = functools.partial(NamedSharding, mesh)
    weights = jax.tree.map(
        lambda row: jax.ShapeDtypeStruct(row[0], jnp.bfloat16, sharding=on(row[1])),
        weight_table(cfg),
        is_leaf=lambda x: isinstance(x, tuple),
    )
    cache_sharding = on(P(None, "data", None, "model"))
    cache = jax.ShapeDtypeStruct(cfg.cache_shape, jnp.bfloat16, sharding=cache_sharding)
    slot = jax.ShapeDtypeStruct((cfg.slots,), jnp.int32, sharding=on(P("data")))
    state = DecodeState(k=cache, v=cache, lengths=slot, tokens=slot)
    out_cache = on(stacked(LAYER_CACHE))
    out = DecodeState(k=out_cache, v=out_cache, lengths=slot.sharding, tokens=slot.sharding)
    step = jax.jit(functools.partial(decode, cfg), donate_argnums=1, out_shardings=out)
    return step, (weights, state)
