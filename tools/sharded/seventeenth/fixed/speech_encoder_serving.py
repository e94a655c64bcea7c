# mypy: ignore-errors
"""Clean. Speech recognition encoder (flax.nnx), tensor parallel over 8 chips and replicated twice.
"""
import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    mel_bins: int = 80
    width: int = 640
    heads: int = 10
    hidden: int = 2560
    layers: int = 4
    vocab: int = 4096
    frames: int = 2048
    batch: int = 16
    dtype: jnp.dtype = jnp.bfloat16


COLUMNS, ROWS = P(None, "tensor"), P("tensor", None)
TOKENS = P("replica", None, None)
HIDDEN = P("replica", None, "tensor")
SCORES = P("replica", None, "tensor", None)


def linear(n_in, n_out, spec, cfg, rngs, bias=False):
    init = nnx.with_metadata(nnx.initializers.lecun_normal(), sharding_names=None, layout=spec)
    return nnx.Linear(
        n_in, n_out, use_bias=bias, kernel_init=init, dtype=cfg.dtype, param_dtype=cfg.dtype, rngs=rngs
    )


class SelfAttention(nnx.Module):
    def __init__(self, cfg, mesh, rngs):
        self.heads, self.mesh = cfg.heads, mesh
        self.q = linear(cfg.width, cfg.width, COLUMNS, cfg, rngs)
        self.k = linear(cfg.width, cfg.width, COLUMNS, cfg, rngs)
        self.v = linear(cfg.width, cfg.width, COLUMNS, cfg, rngs)
        self.out = linear(cfg.width, cfg.width, ROWS, cfg, rngs)

    def __call__(self, x, valid):
        b, t, d = x.shape
        split = lambda y: y.reshape(b, t, self.heads, d // self.heads)
        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32)
        scores = jax.lax.with_sharding_constraint(
            scores / math.sqrt(d // self.heads), NamedSharding(self.mesh, SCORES)
        )
        scores = jnp.where(valid[:, None, None, :], scores, -1e9)
        weights = jax.nn.softmax(scores).astype(x.dtype)
        return self.out(jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, t, d))


class Block(nnx.Module):
    def __init__(self, cfg, mesh, rngs):
        self.mesh = mesh
        self.norm1 = nnx.LayerNorm(cfg.width, dtype=cfg.dtype, rngs=rngs)
        self.norm2 = nnx.LayerNorm(cfg.width, dtype=cfg.dtype, rngs=rngs)
        self.attn = SelfAttention(cfg, mesh, rngs)
        self.up = linear(cfg.width, cfg.hidden, COLUMNS, cfg, rngs)
        self.down = linear(cfg.hidden, cfg.width, ROWS, cfg, rngs)

    def __call__(self, x, valid):
        x = x + self.attn(self.norm1(x), valid)
        h = jax.lax.with_sharding_constraint(
            nnx.silu(self.up(self.norm2(x))), NamedSharding(self.mesh, HIDDEN)
        )
        return jax.lax.with_sharding_constraint(x + self.down(h), NamedSharding(self.mesh, TOKENS))


class SpeechEncoder(nnx.Module):
    def __init__(self, cfg, mesh, rngs):
        self.cfg = cfg
        self.front = linear(cfg.mel_bins, cfg.width, P(), cfg, rngs)
        self.blocks = nnx.List([Block(cfg, mesh, rngs) for _ in range(cfg.layers)])
        self.norm = nnx.LayerNorm(cfg.width, dtype=cfg.dtype, rngs=rngs)
        self.head = linear(cfg.width, cfg.vocab, COLUMNS, cfg, rngs)

    def positions(self):
        half = self.cfg.width // 2
        rate = jnp.exp(-jnp.arange(half) * (math.log(10_000.0) / half))
        angle = jnp.arange(self.cfg.frames)[:, None] * rate[None, :]
        return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1).astype(self.cfg.dtype)

    def __call__(self, mel, lengths):
        valid = jnp.arange(self.cfg.frames)[None, :] < lengths[:, None]
        x = self.front(mel.astype(self.cfg.dtype)) + self.positions()
        for block in self.blocks:
            x = block(x, valid)
        return self.head(self.norm(x)), valid


def make_fixed(devices):
    cfg = EncoderConfig()
    mesh = Mesh(np.array(devices).reshape(2, 8), ("replica", "tensor"))
    model = nnx.eval_shape(lambda: SpeechEncoder(cfg, mesh, nnx.Rngs(0)))
    graph, state = nnx.split(model)

    def placed(var):
        sharding = NamedSharding(mesh, var.get_metadata().get("layout", P()))
        value = var.get_value()
        return var.replace(jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding))

    state = jax.tree.map(placed, state, is_leaf=lambda v: isinstance(v, nnx.Variable))

    def transcribe(state, mel, lengths):
        """Greedy CTC: the best symbol and its log-probability for every frame."""
        logits, valid = nnx.merge(graph, state)(mel, lengths)
        logits = jax.lax.with_sharding_constraint(logits, NamedSharding(mesh, HIDDEN))
        logp = jax.nn.log_softmax(logits.astype(jnp.float32))
        best = jnp.argmax(logp, axis=-1)
        return jnp.where(valid, best, 0), jnp.where(valid, logp.max(-1), 0.0)

    by_clip = NamedSharding(mesh, P("replica"))
    mel = jax.ShapeDtypeStruct((cfg.batch, cfg.frames, cfg.mel_bins), jnp.float32, sharding=by_clip)
    lengths = jax.ShapeDtypeStruct((cfg.batch,), jnp.int32, sharding=by_clip)
    return jax.jit(transcribe, out_shardings=(by_clip, by_clip)), (state, mel, lengths)
