# mypy: ignore-errors
"""Clean. Decoding with latent attention: one latent serves all heads, so the cache cannot be split
by head and is split by request and by position; the down-projections are whole, being small.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclass(frozen=True)
class ModelConfig:
    layers: int = 4
    width: int = 2048
    heads: int = 16
    latent: int = 512
    rotary: int = 64
    head: int = 128
    ffn: int = 8192
    vocab: int = 65536
    requests: int = 16
    positions: int = 8192


class Weights(NamedTuple):
    """One layer; the key's and the value's up-projections are absorbed in query and output."""

    query: jax.Array  # [d, h, c + r]
    latent: jax.Array  # [d, c + r]
    value: jax.Array  # [c, h, k]
    output: jax.Array  # [h, k, d]
    up: jax.Array
    down: jax.Array


LAYER_SPECS = Weights(
    query=P(None, ("data", "model"), None),
    latent=P(),
    value=P(None, ("data", "model"), None),
    output=P(("data", "model"), None, None),
    up=P(None, ("data", "model")),
    down=P(("data", "model"), None),
)
CACHE_SPEC = P("data", "model", None)


def norm(x):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def rotate(x, position):
    """Rotary embedding of the last axis, for the position all requests are at."""
    half = x.shape[-1] // 2
    angle = position * jnp.exp(-np.log(1e4) * jnp.arange(half) / half)
    cos, sin = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


class LatentDecoder:
    def __init__(self, cfg, mesh):
        self.cfg, self.mesh = cfg, mesh

    def sharding(self, spec):
        return NamedSharding(self.mesh, spec)

    def lay(self, x, *axes):
        return jax.lax.with_sharding_constraint(x, self.sharding(P(*axes)))

    def attention(self, x, w, cache, position):
        c = self.cfg.latent
        fresh = x @ w.latent
        fresh = jnp.concatenate([fresh[:, :c], rotate(fresh[:, c:], position)], axis=-1)
        # A select writes the entry on the chip that has the position, without communication.
        here = (jnp.arange(self.cfg.positions) == position)[None, :, None]
        cache = self.lay(jnp.where(here, fresh[:, None], cache), *CACHE_SPEC)

        q = jnp.einsum("bd,dhe->bhe", x, w.query)
        q = jnp.concatenate([q[..., :c], rotate(q[..., c:], position)], axis=-1)
        q = self.lay(q, "data", None, None)
        scores = jnp.einsum("bhe,bte->bht", q, cache, preferred_element_type=jnp.float32)
        scores *= (self.cfg.head + self.cfg.rotary) ** -0.5
        scores = self.lay(scores, "data", None, "model")
        seen = jnp.arange(self.cfg.positions) <= position
        probs = jax.nn.softmax(jnp.where(seen, scores, -1e9), axis=-1).astype(x.dtype)
        mixed = jnp.einsum("bht,bte->bhe", probs, cache)[..., :c]
        mixed = self.lay(mixed, None, ("data", "model"), None)
        values = jnp.einsum("bhc,chk->bhk", mixed, w.value)
        return jnp.einsum("bhk,hkd->bd", values, w.output), cache

    def step(self, weights, caches, tokens, position):
        """The next token of every request; activations of one position are small and whole."""
        x = self.lay(weights["embed"][tokens], None, None)
        written = []
        for w, cache in zip(weights["layers"], caches, strict=True):
            y, cache = self.attention(norm(x), w, cache, position)  # noqa: PLW2901
            written.append(cache)
            x = self.lay(x + y, None, None)
            x = self.lay(x + jax.nn.gelu(norm(x) @ w.up) @ w.down, None, None)
        logits = jnp.einsum("bd,vd->bv", norm(x), weights["embed"])
        return jnp.argmax(logits, axis=-1).astype(jnp.int32), written


def make_clean(devices):
    cfg = ModelConfig()
    model = LatentDecoder(cfg, Mesh(np.array(devices).reshape(2, 2), ("data", "model")))

    def array(shape, spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=model.sharding(spec))

    d, h, e = cfg.width, cfg.heads, cfg.latent + cfg.rotary
    shapes = Weights(
        (d, h, e), (d, e), (cfg.latent, h, cfg.head), (h, cfg.head, d), (d, cfg.ffn), (cfg.ffn, d)
    )
    layer = Weights(*map(array, shapes, LAYER_SPECS))
    embed = array((cfg.vocab, d), P(("data", "model"), None))
    weights = {"embed": embed, "layers": [layer] * cfg.layers}
    caches = [array((cfg.requests, cfg.positions, e), CACHE_SPEC)] * cfg.layers
    tokens, position = array((cfg.requests,), P(), jnp.int32), array((), P(), jnp.int32)
    out = (tokens.sharding, [cache.sharding for cache in caches])
    jitted = jax.jit(model.step, donate_argnums=1, out_shardings=out)
    return jitted, (weights, caches, tokens, position)
