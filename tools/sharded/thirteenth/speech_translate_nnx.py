# mypy: ignore-errors
"""Clean. One decoding step of a speech translation decoder (nnx): self and cross caches are divided by slots and heads and updated in place; position table, norms and the beam scores are small and whole."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclass(frozen=True)
class DecoderConfig:
    dim: int = 1024
    heads: int = 8
    layers: int = 8
    ff: int = 4096
    vocab: int = 32768
    slots: int = 32  # utterances times beams
    beams: int = 4
    target_len: int = 512
    audio_len: int = 1024


class DecoderLayer(nnx.Module):
    def __init__(self, c, rngs):
        lin = lambda i, o: nnx.Linear(i, o, use_bias=False, param_dtype=jnp.bfloat16, dtype=jnp.bfloat16, rngs=rngs)
        self.ln = nnx.List([nnx.RMSNorm(c.dim, dtype=jnp.bfloat16, rngs=rngs) for _ in range(3)])
        self.self_in, self.self_out = lin(c.dim, 3 * c.dim), lin(c.dim, c.dim)
        self.cross_in, self.cross_out = lin(c.dim, c.dim), lin(c.dim, c.dim)
        self.up, self.down = lin(c.dim, c.ff), lin(c.ff, c.dim)
        self.heads = c.heads

    def attend(self, q, k, v, mask):
        s = jnp.einsum("bhd,bhsd->bhs", q, k).astype(jnp.float32) * q.shape[-1] ** -0.5
        p = jax.nn.softmax(jnp.where(mask, s, -1e30)).astype(v.dtype)
        return jnp.einsum("bhs,bhsd->bhd", p, v).reshape(q.shape[0], -1)

    def __call__(self, x, own, cross, pos, audio_mask):
        split = lambda a: a.reshape(x.shape[0], self.heads, -1)
        q, k, v = (split(a) for a in jnp.split(self.self_in(self.ln[0](x)), 3, -1))
        own = {n: jax.lax.dynamic_update_slice_in_dim(own[n], a[:, :, None], pos, 2) for n, a in (("k", k), ("v", v))}
        seen = jnp.arange(own["k"].shape[2]) <= pos
        x = x + self.self_out(self.attend(q, own["k"], own["v"], seen))
        q = split(self.cross_in(self.ln[1](x)))
        x = x + self.cross_out(self.attend(q, cross["k"], cross["v"], audio_mask[:, None]))
        return x + self.down(jax.nn.gelu(self.up(self.ln[2](x)))), own


class Decoder(nnx.Module):
    def __init__(self, c, rngs):
        self.embed = nnx.Embed(c.vocab, c.dim, param_dtype=jnp.bfloat16, dtype=jnp.bfloat16, rngs=rngs)
        self.position = nnx.Embed(c.target_len, c.dim, param_dtype=jnp.bfloat16, dtype=jnp.bfloat16, rngs=rngs)
        self.layers = nnx.List([DecoderLayer(c, rngs) for _ in range(c.layers)])

    def __call__(self, tokens, cache, cross, pos, audio_mask):
        x = self.embed(tokens) + self.position(pos)
        new = []
        for layer, own, other in zip(self.layers, cache, cross):
            x, own = layer(x, own, other, pos, audio_mask)
            new.append(own)
        return self.embed.attend(x).astype(jnp.float32), new


COLUMN, ROW = ("self_in", "cross_in", "up"), ("self_out", "cross_out", "down")


def weight_sharding(mesh, path, _):
    name = jax.tree_util.keystr(path)
    if any(k in name for k in COLUMN):
        return NamedSharding(mesh, P(None, "tensor"))
    if any(k in name for k in ROW) or "'embed'" in name:
        return NamedSharding(mesh, P("tensor", None))
    return NamedSharding(mesh, P())


def make_clean(devices):
    c = DecoderConfig()
    mesh = Mesh(np.array(devices).reshape(2, 2), ("data", "tensor"))
    sds = lambda shape, dtype, *spec: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))
    graph, weights = nnx.split(nnx.eval_shape(lambda: Decoder(c, nnx.Rngs(0))))
    weights = jax.tree_util.tree_map_with_path(
        lambda p, x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=weight_sharding(mesh, p, x)), weights)
    kv = lambda n: {k: sds((c.slots, c.heads, n, c.dim // c.heads), jnp.bfloat16, "data", "tensor") for k in "kv"}
    cache, cross = [kv(c.target_len) for _ in range(c.layers)], [kv(c.audio_len) for _ in range(c.layers)]

    def step(weights, cache, cross, tokens, scores, pos, audio_mask):
        logits, cache = nnx.merge(graph, weights)(tokens, cache, cross, pos, audio_mask)
        total = scores[:, None] + jax.nn.log_softmax(logits)
        best, index = jax.lax.top_k(total.reshape(c.slots // c.beams, -1), c.beams)
        parent = (jnp.arange(c.slots // c.beams)[:, None] * c.beams + index // c.vocab).reshape(-1)
        return cache, (index % c.vocab).reshape(-1).astype(jnp.int32), best.reshape(-1), parent, pos + 1

    small = NamedSharding(mesh, P())
    out = (jax.tree.map(lambda x: x.sharding, cache), small, small, small, small)
    slot = lambda dtype: sds((c.slots,), dtype)
    args = (weights, cache, cross, slot(jnp.int32), slot(jnp.float32), sds((), jnp.int32), sds((c.slots, c.audio_len), jnp.bool_, "data"))
    return jax.jit(step, donate_argnums=1, out_shardings=out), args
