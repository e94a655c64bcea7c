# mypy: ignore-errors
"""Fixed."""
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Chat:
    layers: int = 8
    d: int = 1024
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 128
    ff: int = 2816
    vocab: int = 32000
    requests: int = 8
    context: int = 4096


WEIGHTS = {
    "wq": P(None, None, "tp", None), "wk": P(None, None, "tp", None), "wv": P(None, None, "tp", None), "wo": P(None, "tp", None, None),
    "gate": P(None, None, "tp"), "up": P(None, None, "tp"), "down": P(None, "tp", None), "ln": P(None, None, None),
}
# layers, requests, kv heads, positions, head size
CACHE = P(None, "dp", "tp")


def shapes(c):
    kv = (c.layers, c.d, c.kv_heads, c.head_dim)
    return {
        "wq": (c.layers, c.d, c.heads, c.head_dim), "wk": kv, "wv": kv, "wo": (c.layers, c.heads, c.head_dim, c.d),
        "gate": (c.layers, c.d, c.ff), "up": (c.layers, c.d, c.ff), "down": (c.layers, c.ff, c.d), "ln": (c.layers, 2, c.d),
    }


def normed(x, g):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-5).astype(x.dtype) * g


def attend(c, w, x, k_cache, v_cache, pos):
    q, k, v = (jnp.einsum("bd,dhk->bhk", x, w[n]) for n in ("wq", "wk", "wv"))
    k_cache = jax.lax.dynamic_update_slice(k_cache, k[:, :, None], (0, 0, pos, 0))
    v_cache = jax.lax.dynamic_update_slice(v_cache, v[:, :, None], (0, 0, pos, 0))
    q = q.reshape(q.shape[0], c.kv_heads, -1, c.head_dim)
    scores = jnp.einsum("bhgk,bhsk->bhgs", q, k_cache).astype(jnp.float32) * c.head_dim ** -0.5
    probs = jax.nn.softmax(jnp.where(jnp.arange(c.context) <= pos, scores, -1e30)).astype(x.dtype)
    mixed = jnp.einsum("bhgs,bhsk->bhgk", probs, v_cache).reshape(-1, c.heads, c.head_dim)
    return jnp.einsum("bhk,hkd->bd", mixed, w["wo"]), k_cache, v_cache


def decode(c, weights, embed, cache, tokens, pos):
    def layer(i, carry):
        x, k, v = carry
        w = jax.tree.map(lambda a: a[i], weights)
        out, ki, vi = attend(c, w, normed(x, w["ln"][0]), k[i], v[i], pos)
        x = x + out
        h = normed(x, w["ln"][1])
        x = x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
        return x, k.at[i].set(ki), v.at[i].set(vi)

    x, k, v = jax.lax.fori_loop(0, c.layers, layer, (embed[tokens], cache["k"], cache["v"]))
    return jnp.argmax(x @ embed.T, -1).astype(jnp.int32), {"k": k, "v": v}


def make_fixed(devices):
    c, mesh = Chat(), Mesh(np.array(devices).reshape(2, 2), ("dp", "tp"))
    on = lambda spec: NamedSharding(mesh, spec)
    weights = {k: jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=on(WEIGHTS[k])) for k, s in shapes(c).items()}
    embed = jax.ShapeDtypeStruct((c.vocab, c.d), jnp.bfloat16, sharding=on(P("tp", None)))
    buffer = jax.ShapeDtypeStruct((c.layers, c.requests, c.kv_heads, c.context, c.head_dim), jnp.bfloat16, sharding=on(CACHE))
    tokens = jax.ShapeDtypeStruct((c.requests,), jnp.int32, sharding=on(P("dp")))
    pos = jax.ShapeDtypeStruct((), jnp.int32, sharding=on(P()))
    step = jax.jit(partial(decode, c), donate_argnums=(2,), out_shardings=(on(P("dp")), {"k": on(CACHE), "v": on(CACHE)}))
    return step, (weights, embed, {"k": buffer, "v": buffer}, tokens, pos)
