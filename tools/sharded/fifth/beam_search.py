# mypy: ignore-errors
"""Clean. One call of a beam-search translator: several steps in a loop, caches split over sentences and
heads and donated to a result of the same layout."""
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class Config:
    vocab: int = 16384
    width: int = 1024
    heads: int = 8
    ff: int = 4096
    layers: int = 3
    sentences: int = 16
    beams: int = 4
    length: int = 256
    source: int = 128
    steps: int = 8


class Beams(NamedTuple):
    tokens: jax.Array  # (sentences, beams, length)
    scores: jax.Array  # (sentences, beams)
    keys: jax.Array  # (layers, sentences, beams, length, heads, dim)
    values: jax.Array
    position: jax.Array


BEAM_SPECS = Beams(
    tokens=P("data"), scores=P("data"), position=P(),
    keys=P(None, "data", None, None, "model"), values=P(None, "data", None, None, "model"),
)
WEIGHT_RULES = {
    "embed": P("model", None),
    "self_qkv": P(None, None, None, "model"), "cross_q": P(None, None, "model"),
    "cross_kv": P(None, None, None, "model"), "self_o": P(None, "model"), "cross_o": P(None, "model"),
    "up": P(None, None, "model"), "down": P(None, "model"),
}


def norm(x):
    y = x.astype(jnp.float32)
    return (y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6)).astype(x.dtype)


def attend(q, k, v, mask=None):
    """q (s, b, h, d) against k and v (s, b, t, h, d)."""
    s = jnp.einsum("sbhd,sbthd->sbht", q, k).astype(jnp.float32) / np.sqrt(q.shape[-1])
    p = jax.nn.softmax(s if mask is None else jnp.where(mask, s, -1e30)).astype(v.dtype)
    o = jnp.einsum("sbht,sbthd->sbhd", p, v)
    return o.reshape(*o.shape[:2], -1)


def make_clean(devices):
    c = Config()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "model"))
    hd = c.width // c.heads

    def heads(x):
        return x.reshape(*x.shape[:-1], c.heads, hd)

    def decoder(w, beams, source):
        x = w["embed"][lax.dynamic_index_in_dim(beams.tokens, beams.position, 2, keepdims=False)]
        mask = jnp.arange(c.length) <= beams.position

        def layer(x, inp):
            p, ks, vs = inp
            q, k, v = (heads(norm(x) @ p["self_qkv"][i]) for i in range(3))
            ks = lax.dynamic_update_index_in_dim(ks, k[:, :, None], beams.position, 2)
            vs = lax.dynamic_update_index_in_dim(vs, v[:, :, None], beams.position, 2)
            x = x + attend(q, ks, vs, mask) @ p["self_o"]
            q, (k, v) = heads(norm(x) @ p["cross_q"]), (heads(source @ p["cross_kv"][i])[:, None] for i in range(2))
            k, v = (jnp.broadcast_to(a, (a.shape[0], c.beams, *a.shape[2:])) for a in (k, v))
            x = x + attend(q, k, v) @ p["cross_o"]
            return x + jax.nn.relu(norm(x) @ p["up"]) @ p["down"], (ks, vs)

        x, (keys, values) = lax.scan(layer, x, (w["layers"], beams.keys, beams.values))
        logits = (norm(x) @ w["embed"].T).astype(jnp.float32)
        return jax.nn.log_softmax(logits), keys, values

    def extend(beams, w, source):
        logp, keys, values = decoder(w, beams, source)
        best, token = lax.top_k(logp, c.beams)  # per beam, then over beams: the vocabulary is never flattened
        total = (beams.scores[..., None] + best).reshape(c.sentences, -1)
        scores, flat = lax.top_k(total, c.beams)
        parent, token = flat // c.beams, jnp.take_along_axis(token.reshape(c.sentences, -1), flat, 1)
        pick = jax.nn.one_hot(parent, c.beams, dtype=keys.dtype)  # a small matmul instead of a gather
        keys, values = (jnp.einsum("spb,lsbthd->lspthd", pick, a) for a in (keys, values))
        tokens = jnp.take_along_axis(beams.tokens, parent[..., None], 1)
        tokens = lax.dynamic_update_index_in_dim(tokens, token[..., None].astype(jnp.int32), beams.position + 1, 2)
        return Beams(tokens, scores, keys, values, beams.position + 1)

    def search(beams, w, source):
        return lax.fori_loop(0, c.steps, lambda _, b: extend(b, w, source), beams)

    def arr(shape, spec, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    n, d = c.layers, c.width
    shapes = dict(self_qkv=(n, 3, d, d), self_o=(n, d, d), cross_q=(n, d, d), cross_kv=(n, 2, d, d), cross_o=(n, d, d),
                  up=(n, d, c.ff), down=(n, c.ff, d))
    w = {"embed": arr((c.vocab, d), WEIGHT_RULES["embed"]), "layers": {k: arr(s, WEIGHT_RULES[k]) for k, s in shapes.items()}}
    kv = (c.layers, c.sentences, c.beams, c.length, c.heads, hd)
    beam_shapes = Beams((c.sentences, c.beams, c.length), (c.sentences, c.beams), kv, kv, ())
    types = Beams(jnp.int32, jnp.float32, jnp.bfloat16, jnp.bfloat16, jnp.int32)
    beams = Beams(*(arr(s, p, t) for s, p, t in zip(beam_shapes, BEAM_SPECS, types)))
    out = Beams(*(NamedSharding(mesh, p) for p in BEAM_SPECS))
    source = arr((c.sentences, c.source, d), P("data"))
    return jax.jit(search, donate_argnums=0, out_shardings=out), (beams, w, source)
