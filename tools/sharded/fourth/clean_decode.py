# mypy: ignore-errors
"""Clean. Grouped-query decoding with a donated cache stacked over layers, heads split over the mesh, and sampling
from vocabulary-split logits."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Config:
    layers: int = 6
    dim: int = 1024
    heads: int = 16
    kv_heads: int = 4
    head_dim: int = 64
    ffn: int = 4096
    vocab: int = 32768
    batch: int = 16
    context: int = 2048


def norm(x, g):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + 1e-6)).astype(x.dtype) * g


def rope(x, pos):
    half = x.shape[-1] // 2
    ang = pos * (500000.0 ** (-jnp.arange(half) / half))
    cos, sin = jnp.cos(ang).astype(x.dtype), jnp.sin(ang).astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def layer_step(cfg, mesh, pos, x, inputs):
    p, k_cache, v_cache = inputs

    def on_heads(t):
        return jax.lax.with_sharding_constraint(t, NamedSharding(mesh, P(None, "tensor", None, None)))

    h = norm(x, p["ln1"])
    q = rope(jnp.einsum("bd,dhk->bhk", h, p["wq"]), pos)
    k = rope(jnp.einsum("bd,dhk->bhk", h, p["wk"]), pos)
    v = jnp.einsum("bd,dhk->bhk", h, p["wv"])
    k_cache = on_heads(jax.lax.dynamic_update_index_in_dim(k_cache, k, pos, axis=2))
    v_cache = on_heads(jax.lax.dynamic_update_index_in_dim(v_cache, v, pos, axis=2))
    q = on_heads(q.reshape(cfg.batch, cfg.kv_heads, cfg.heads // cfg.kv_heads, cfg.head_dim))
    scores = jnp.einsum("bhgk,bhsk->bhgs", q, k_cache).astype(jnp.float32) * cfg.head_dim**-0.5
    scores = jnp.where(jnp.arange(cfg.context) <= pos, scores, -1e30)
    ctx = jnp.einsum("bhgs,bhsk->bhgk", jax.nn.softmax(scores).astype(x.dtype), v_cache)
    x = x + jnp.einsum("bhk,hkd->bd", ctx.reshape(cfg.batch, cfg.heads, cfg.head_dim), p["wo"])
    h = norm(x, p["ln2"])
    x = x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
    return x, (k_cache, v_cache)


def sample(logits, key, temperature):
    gumbel = jax.random.gumbel(key, logits.shape, jnp.float32)
    return jnp.argmax(logits / temperature + gumbel, axis=-1).astype(jnp.int32)


def decode(cfg, mesh, params, cache, tokens, pos, key):
    x = params["embed"][tokens]
    body = functools.partial(layer_step, cfg, mesh, pos)
    x, (k, v) = jax.lax.scan(body, x, (params["layers"], cache["k"], cache["v"]))
    logits = jnp.einsum("bd,vd->bv", norm(x, params["ln"]), params["embed"]).astype(jnp.float32)
    logits = jax.lax.with_sharding_constraint(logits, NamedSharding(mesh, P(None, "tensor")))
    return sample(logits, key, 0.8), {"k": k, "v": v}


def make_clean(devices):
    cfg = Config()
    mesh = Mesh(np.array(devices), ("tensor",))

    def arr(shape, *spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    n, d = cfg.layers, cfg.dim
    layers = {
        "ln1": arr((n, d)),
        "ln2": arr((n, d)),
        "wq": arr((n, d, cfg.heads, cfg.head_dim), None, None, "tensor", None),
        "wk": arr((n, d, cfg.kv_heads, cfg.head_dim), None, None, "tensor", None),
        "wv": arr((n, d, cfg.kv_heads, cfg.head_dim), None, None, "tensor", None),
        "wo": arr((n, cfg.heads, cfg.head_dim, d), None, "tensor", None, None),
        "gate": arr((n, d, cfg.ffn), None, None, "tensor"),
        "up": arr((n, d, cfg.ffn), None, None, "tensor"),
        "down": arr((n, cfg.ffn, d), None, "tensor", None),
    }
    params = {"embed": arr((cfg.vocab, d), "tensor", None), "ln": arr((d,)), "layers": layers}
    page = arr((n, cfg.batch, cfg.kv_heads, cfg.context, cfg.head_dim), None, None, "tensor", None, None)
    tokens, pos = arr((cfg.batch,), dtype=jnp.int32), arr((), dtype=jnp.int32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    cache_out = {"k": page.sharding, "v": page.sharding}
    fn = jax.jit(
        functools.partial(decode, cfg, mesh), donate_argnums=(1,), out_shardings=(NamedSharding(mesh, P()), cache_out)
    )
    return fn, (params, {"k": page, "v": page}, tokens, pos, key)
