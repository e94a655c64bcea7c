# mypy: ignore-errors
"""Fault: replicated. The decode cache is divided by batch only: the "model" axis, that divides the attention heads, holds the
keys and values of all kv heads on each of its devices."""
import dataclasses
import math
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class ServeConfig:
    vocab: int = 32768
    dim: int = 1024
    ffn: int = 2816
    layers: int = 10
    q_heads: int = 8
    kv_heads: int = 4
    head_dim: int = 128
    slots: int = 16
    context: int = 2048


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where things live on the ("data", "model") mesh."""
    embedding: P = P("model", None)
    q: P = P(None, None, "model", None)
    kv: P = P(None, None, "model", None)
    o: P = P(None, "model", None, None)
    up: P = P(None, None, "model")
    down: P = P(None, "model", None)
    cache: P = P(None, "data", None, None, None)  # FAULT
    token: P = P("data")
    logits: P = P("data", "model")


def weights(c, lay):
    L, D, H = c.layers, c.dim, c.head_dim
    return {
        "emb": ((c.vocab, D), lay.embedding),
        "q": ((L, D, c.q_heads, H), lay.q),
        "k": ((L, D, c.kv_heads, H), lay.kv),
        "v": ((L, D, c.kv_heads, H), lay.kv),
        "o": ((L, c.q_heads, H, D), lay.o),
        "gate": ((L, D, c.ffn), lay.up),
        "up": ((L, D, c.ffn), lay.up),
        "down": ((L, c.ffn, D), lay.down),
        "ln_attn": ((L, D), P()),
        "ln_mlp": ((L, D), P()),
    }


def rmsnorm(x, g):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-5).astype(x.dtype) * g


def rope(x, pos):  # b h d
    half = x.shape[-1] // 2
    angle = pos[:, None, None] * jnp.exp(-math.log(5e5) * jnp.arange(half) / half)
    a, b = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle), a * jnp.sin(angle) + b * jnp.cos(angle)], -1).astype(x.dtype)


def decode_step(c, params, cache, tokens, pos):
    """One token for every slot; the cache is layer, slot, head, position, feature."""
    x = params["emb"][tokens]
    per_layer = {k: v for k, v in params.items() if k != "emb"}
    visible = jnp.arange(c.context)[None, :] <= pos[:, None]
    group = c.q_heads // c.kv_heads

    def layer(carry, inputs):
        x, cache = carry
        i, w = inputs
        h = rmsnorm(x, w["ln_attn"])
        q = rope(jnp.einsum("bd,dhk->bhk", h, w["q"]), pos).reshape(c.slots, c.kv_heads, group, c.head_dim)
        k = rope(jnp.einsum("bd,dhk->bhk", h, w["k"]), pos)
        v = jnp.einsum("bd,dhk->bhk", h, w["v"])
        write = jax.vmap(lambda page, new, p: jax.lax.dynamic_update_slice(page, new[:, None], (0, p, 0)))
        keys, values = write(cache["k"][i], k, pos), write(cache["v"][i], v, pos)
        cache = {"k": cache["k"].at[i].set(keys), "v": cache["v"].at[i].set(values)}
        scores = jnp.einsum("bhgk,bhsk->bhgs", q, keys).astype(jnp.float32) / math.sqrt(c.head_dim)
        probs = jax.nn.softmax(jnp.where(visible[:, None, None], scores, -jnp.inf), -1).astype(x.dtype)
        mixed = jnp.einsum("bhgs,bhsk->bhgk", probs, values).reshape(c.slots, c.q_heads, c.head_dim)
        x = x + jnp.einsum("bhk,hkd->bd", mixed, w["o"])
        h = rmsnorm(x, w["ln_mlp"])
        return (x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"], cache), None

    (x, cache), _ = jax.lax.scan(layer, (x, cache), (jnp.arange(c.layers), per_layer))
    return x @ params["emb"].T, cache


def make_faulty(devices):
    c, lay = ServeConfig(), Layout()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))
    named = lambda s: NamedSharding(mesh, s)
    table = weights(c, lay)
    params = {k: jax.ShapeDtypeStruct(shape, jnp.bfloat16) for k, (shape, _) in table.items()}
    param_sh = {k: named(s) for k, (_, s) in table.items()}
    page = jax.ShapeDtypeStruct((c.layers, c.slots, c.kv_heads, c.context, c.head_dim), jnp.bfloat16)
    cache_sh = {"k": named(lay.cache), "v": named(lay.cache)}
    ints = jax.ShapeDtypeStruct((c.slots,), jnp.int32)
    fn = jax.jit(
        lambda *a: decode_step(c, *a),
        in_shardings=(param_sh, cache_sh, named(lay.token), named(lay.token)),
        out_shardings=(named(lay.logits), cache_sh),
        donate_argnums=1,
    )
    return fn, (params, {"k": page, "v": page}, ints, ints)
