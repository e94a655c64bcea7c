# mypy: ignore-errors
"""Clean. Decode step of a language model with grouped heads; the cache is split by sequences and by heads.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclass(frozen=True)
class ServeConfig:
    vocab: int = 32_000
    dim: int = 2048
    layers: int = 4
    q_heads: int = 16
    kv_heads: int = 4
    head_dim: int = 128
    ffn: int = 5632
    slots: int = 64
    context: int = 2048
    eos: int = 2


class KVCache(nnx.Variable): ...

def matrix(rngs, *shape):
    return nnx.Param(jax.random.normal(rngs.params(), shape, jnp.bfloat16) * shape[0] ** -0.5)


def rms(x, scale):
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5)
    return (y * scale).astype(x.dtype)


def rotary(x, pos):
    half = x.shape[-1] // 2
    angle = pos[:, None, None] * 10_000.0 ** (-jnp.arange(half) / half)
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate([a * c - b * s, a * s + b * c], -1).astype(x.dtype)


class Attention(nnx.Module):
    def __init__(self, cfg, rngs):
        self.cfg = cfg
        self.wq = matrix(rngs, cfg.dim, cfg.q_heads, cfg.head_dim)
        self.wk = matrix(rngs, cfg.dim, cfg.kv_heads, cfg.head_dim)
        self.wv = matrix(rngs, cfg.dim, cfg.kv_heads, cfg.head_dim)
        self.wo = matrix(rngs, cfg.q_heads, cfg.head_dim, cfg.dim)
        shape = (cfg.slots, cfg.context, cfg.kv_heads, cfg.head_dim)
        self.keys = KVCache(jnp.zeros(shape, jnp.bfloat16))
        self.values = KVCache(jnp.zeros(shape, jnp.bfloat16))

    def __call__(self, x, pos):
        cfg = self.cfg
        q = rotary(jnp.einsum("bd,dhk->bhk", x, self.wq[...]), pos)
        k = rotary(jnp.einsum("bd,dhk->bhk", x, self.wk[...]), pos)
        v = jnp.einsum("bd,dhk->bhk", x, self.wv[...])
        slot = jnp.arange(x.shape[0])
        self.keys[...] = self.keys[...].at[slot, pos].set(k, unique_indices=True)
        self.values[...] = self.values[...].at[slot, pos].set(v, unique_indices=True)
        q = q.reshape(x.shape[0], cfg.kv_heads, -1, cfg.head_dim)
        scores = jnp.einsum("bhgk,bthk->bhgt", q, self.keys[...]).astype(jnp.float32)
        seen = jnp.arange(cfg.context) <= pos[:, None]
        scores = jnp.where(seen[:, None, None], scores * cfg.head_dim**-0.5, -1e30)
        probs = jax.nn.softmax(scores, -1).astype(x.dtype)
        mixed = jnp.einsum("bhgt,bthk->bhgk", probs, self.values[...])
        return jnp.einsum("bhk,hkd->bd", mixed.reshape(-1, cfg.q_heads, cfg.head_dim), self.wo[...])


class Layer(nnx.Module):
    def __init__(self, cfg, rngs):
        self.attention = Attention(cfg, rngs)
        self.gate = matrix(rngs, cfg.dim, cfg.ffn)
        self.up = matrix(rngs, cfg.dim, cfg.ffn)
        self.down = matrix(rngs, cfg.ffn, cfg.dim)
        self.scale1, self.scale2 = (nnx.Param(jnp.ones((cfg.dim,))) for _ in range(2))

    def __call__(self, x, pos):
        x = x + self.attention(rms(x, self.scale1[...]), pos)
        h = rms(x, self.scale2[...])
        return x + (jax.nn.silu(h @ self.gate[...]) * (h @ self.up[...])) @ self.down[...]


class Decoder(nnx.Module):
    def __init__(self, cfg, rngs):
        self.embedding = matrix(rngs, cfg.vocab, cfg.dim)
        self.layers = nnx.List([Layer(cfg, rngs) for _ in range(cfg.layers)])
        self.scale = nnx.Param(jnp.ones((cfg.dim,)))

    def __call__(self, tokens, pos):
        x = self.embedding[...][tokens]
        for layer in self.layers:
            x = layer(x, pos)
        return rms(x, self.scale[...]) @ self.embedding[...].T


WEIGHTS = {
    **dict.fromkeys(("wq", "wk", "wv"), P(None, "model", None)),
    **dict.fromkeys(("gate", "up"), P(None, "model")),
    **dict.fromkeys(("embedding", "down"), P("model", None)),
    "wo": P("model", None, None),
}
STATE = {KVCache: P("data", None, "model", None)}


def place(mesh, state):
    def one(path, var):
        spec = STATE.get(type(var)) or WEIGHTS.get(path[-1], P())
        return var.replace(jax.ShapeDtypeStruct(var.shape, var.dtype, sharding=NamedSharding(mesh, spec)))

    return nnx.from_flat_state([(path, one(path, var)) for path, var in nnx.to_flat_state(state)])


def make_fixed(devices):
    cfg = ServeConfig()
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))
    model = nnx.eval_shape(lambda: Decoder(cfg, nnx.Rngs(0)))
    graph, params, cache = nnx.split(model, nnx.Param, KVCache)
    params, cache = place(mesh, params), place(mesh, cache)
    rows = NamedSharding(mesh, P("data"))

    def decode(params, cache, tokens, pos):
        model = nnx.merge(graph, params, cache)
        chosen = jnp.argmax(model(tokens, pos), -1).astype(jnp.int32)
        alive = (tokens != cfg.eos) & (pos < cfg.context - 1)
        return nnx.state(model, KVCache), jnp.where(alive, chosen, cfg.eos), pos + alive

    ids = jax.ShapeDtypeStruct((cfg.slots,), jnp.int32, sharding=rows)
    kept = jax.tree.map(lambda a: a.sharding, cache)
    fn = jax.jit(decode, donate_argnums=(1,), out_shardings=(kept, rows, rows))
    return fn, (params, cache, ids, ids)
