# mypy: ignore-errors
"""Clean. A speech decoder's step; both caches are split over requests and heads."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclass(frozen=True)
class DecoderConfig:
    layers: int = 6
    width: int = 1280
    heads: int = 20
    ffn: int = 5120
    vocab: int = 51866
    tokens: int = 448
    frames: int = 1500
    requests: int = 16

    @property
    def head_dim(self):
        return self.width // self.heads


class Attention(NamedTuple):
    q: jax.Array
    k: jax.Array
    v: jax.Array
    o: jax.Array


class Layer(NamedTuple):
    norms: jax.Array
    own: Attention
    audio: Attention
    up: jax.Array
    down: jax.Array


class Cache(NamedTuple):
    keys: jax.Array
    values: jax.Array


HEADS_IN = P(None, "model", None)
ATTENTION = Attention(HEADS_IN, HEADS_IN, HEADS_IN, P("model", None, None))
LAYER = Layer(P(), ATTENTION, ATTENTION, P(None, "model"), P("model", None))
TOKEN_CACHE = P("data", None, "model", None)
AUDIO_CACHE = P("data", None, "model", None)


def norm(x, scale):
    x32 = x.astype(jnp.float32)
    x32 = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + 1e-6)
    return (x32 * scale).astype(x.dtype)


def attend(q, cache, valid):
    scores = jnp.einsum("bhk,bthk->bht", q, cache.keys, preferred_element_type=jnp.float32)
    scores = jnp.where(valid, scores * q.shape[-1] ** -0.5, -1e9)
    probs = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
    return jnp.einsum("bht,bthk->bhk", probs, cache.values)


def store(cache, key, value, step):
    at = (0, step, 0, 0)
    return Cache(
        jax.lax.dynamic_update_slice(cache.keys, key[:, None], at),
        jax.lax.dynamic_update_slice(cache.values, value[:, None], at),
    )


def decode_step(weights, token_caches, audio_caches, tokens, step):
    """One token for every request; `step` is the position all of them are at."""
    x = weights["embed"][tokens]
    seen = jnp.arange(token_caches[0].keys.shape[1]) <= step
    updated = []
    for layer, own_cache, audio_cache in zip(
        weights["layers"], token_caches, audio_caches, strict=True
    ):
        h = norm(x, layer.norms[0])
        q, k, v = (jnp.einsum("bd,dhk->bhk", h, w) for w in layer.own[:3])
        own_cache = store(own_cache, k, v, step)  # noqa: PLW2901
        updated.append(own_cache)
        x += jnp.einsum("bhk,hkd->bd", attend(q, own_cache, seen), layer.own.o)
        q = jnp.einsum("bd,dhk->bhk", norm(x, layer.norms[1]), layer.audio.q)
        heard = attend(q, audio_cache, jnp.array(True))
        x += jnp.einsum("bhk,hkd->bd", heard, layer.audio.o)
        x += jax.nn.gelu(norm(x, layer.norms[2]) @ layer.up) @ layer.down
    logits = jnp.einsum("bd,vd->bv", x, weights["embed"], preferred_element_type=jnp.float32)
    return jnp.argmax(logits, axis=-1).astype(jnp.int32), updated


def make_fixed(devices):
    cfg = DecoderConfig()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))

    def array(spec, *shape, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    def cache(spec, length):
        shape = (cfg.requests, length, cfg.heads, cfg.head_dim)
        return [Cache(array(spec, *shape), array(spec, *shape)) for _ in range(cfg.layers)]

    project = (cfg.width, cfg.heads, cfg.head_dim)
    attention = Attention(project, project, project, (cfg.heads, cfg.head_dim, cfg.width))
    shapes = Layer((3, cfg.width), attention, attention, (cfg.width, cfg.ffn), (cfg.ffn, cfg.width))
    layer = jax.tree.map(lambda spec, shape: array(spec, *shape), LAYER, shapes)
    weights = {
        "embed": array(P("model", None), cfg.vocab, cfg.width),
        "layers": [layer] * cfg.layers,
    }
    token_caches = cache(TOKEN_CACHE, cfg.tokens)
    audio_caches = cache(AUDIO_CACHE, cfg.frames)
    tokens = array(P("data"), cfg.requests, dtype=jnp.int32)
    step = array(P(), dtype=jnp.int32)
    kept = jax.tree.map(lambda a: a.sharding, token_caches)
    jitted = jax.jit(decode_step, donate_argnums=1, out_shardings=(tokens.sharding, kept))
    return jitted, (weights, token_caches, audio_caches, tokens, step)
