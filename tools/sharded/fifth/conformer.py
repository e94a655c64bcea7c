# mypy: ignore-errors
"""Fault: padding. The attention splits five heads over four chips: every chip holds two heads'
scores and three of the eight slots are padding."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass(frozen=True)
class ConformerConfig:
    mels: int = 80
    dim: int = 320
    heads: int = 5
    ff: int = 1280
    kernel: int = 5
    blocks: int = 1
    vocab: int = 1024
    batch: int = 8
    frames: int = 6144
    score_axes: tuple = (None, "model", None, None)  # batch, heads, query, key  # FAULT


def shard(x, *axes):
    return jax.lax.with_sharding_constraint(x, P(*axes))  # FAULT


class Attention(nnx.Module):
    def __init__(self, cfg, rngs):
        self.cfg = cfg
        self.qkv, self.out = nnx.Linear(cfg.dim, 3 * cfg.dim, rngs=rngs), nnx.Linear(cfg.dim, cfg.dim, rngs=rngs)
        self.slope = nnx.Param(jnp.zeros((cfg.heads, 1, 1)))

    def __call__(self, x):
        t = x.shape[1]
        q, k, v = jnp.split(self.qkv(x).reshape(*x.shape[:2], self.cfg.heads, -1), 3, -1)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
        scores = shard(scores, *self.cfg.score_axes)  # FAULT
        distance = jnp.abs(jnp.arange(t)[:, None] - jnp.arange(t)).astype(x.dtype)
        probs = jax.nn.softmax(scores - jax.nn.softplus(self.slope[...]) * distance, -1)
        return self.out(jnp.einsum("bhqk,bkhd->bqhd", probs, v).reshape(x.shape))


class ConvModule(nnx.Module):
    def __init__(self, cfg, rngs):
        self.pw1, self.pw2 = nnx.Linear(cfg.dim, 2 * cfg.dim, rngs=rngs), nnx.Linear(cfg.dim, cfg.dim, rngs=rngs)
        self.depth = nnx.Param(jnp.zeros((cfg.kernel, cfg.dim)))
        self.norm = nnx.LayerNorm(cfg.dim, rngs=rngs)

    def __call__(self, x):
        x = jax.nn.glu(self.pw1(x))
        k, half = self.depth[...], self.depth.shape[0] // 2
        padded = jnp.pad(x, ((0, 0), (half, half), (0, 0)))
        x = sum(padded[:, i : i + x.shape[1]] * k[i] for i in range(k.shape[0]))
        return self.pw2(jax.nn.silu(self.norm(x)))


class FeedForward(nnx.Module):
    def __init__(self, cfg, rngs):
        self.up = nnx.Linear(cfg.dim, cfg.ff, rngs=rngs)
        self.down = nnx.Linear(cfg.ff, cfg.dim, rngs=rngs)

    def __call__(self, x):
        return self.down(shard(jax.nn.silu(self.up(x)), None, None, "model"))


class ConformerBlock(nnx.Module):
    def __init__(self, cfg, rngs):
        self.ff1, self.ff2 = FeedForward(cfg, rngs), FeedForward(cfg, rngs)
        self.att, self.conv = Attention(cfg, rngs), ConvModule(cfg, rngs)
        self.norms = nnx.List([nnx.LayerNorm(cfg.dim, rngs=rngs) for _ in range(4)])

    def __call__(self, x):
        x = x + 0.5 * self.ff1(self.norms[0](x))
        x = x + self.att(self.norms[3](x))
        x = x + self.conv(self.norms[1](x))
        return self.norms[2](x + 0.5 * self.ff2(x))


class Conformer(nnx.Module):
    def __init__(self, cfg, rngs):
        self.stem = nnx.Linear(4 * cfg.mels, cfg.dim, rngs=rngs)
        self.blocks = nnx.List([ConformerBlock(cfg, rngs) for _ in range(cfg.blocks)])
        self.head = nnx.Linear(cfg.dim, cfg.vocab, rngs=rngs)

    def __call__(self, mel):
        x = self.stem(mel.reshape(mel.shape[0], mel.shape[1] // 4, -1))
        return self.head(functools.reduce(lambda x, block: block(x), self.blocks, x))


def build(devices, cfg):
    mesh, column, row = Mesh(np.array(devices), ("model",)), ("qkv", "up", "pw1"), ("down", "pw2", "out")
    graph, weights = nnx.split(nnx.eval_shape(lambda: Conformer(cfg, nnx.Rngs(0))))

    def place(path, w):
        names = [k.key for k in path if hasattr(k, "key")]
        kind = names[-2] if names[-1] == "kernel" else None
        spec = P(None, "model") if kind in column else P("model", None) if kind in row else P()
        return jax.ShapeDtypeStruct(w.shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    weights = jax.tree_util.tree_map_with_path(place, weights)

    def loss(weights, mel, labels):
        logits = nnx.merge(graph, jax.tree.map(lambda w: w.astype(jnp.bfloat16), weights))(mel).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()  # forced alignment

    def step(weights, mel, labels):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            value, grads = jax.value_and_grad(loss)(weights, mel, labels)
        return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, grads), value

    mel = jax.ShapeDtypeStruct((cfg.batch, cfg.frames, cfg.mels), jnp.bfloat16, sharding=NamedSharding(mesh, P()))
    labels = jax.ShapeDtypeStruct((cfg.batch, cfg.frames // 4), jnp.int32, sharding=mel.sharding)
    same = jax.tree.map(lambda w: w.sharding, weights)
    return jax.jit(step, donate_argnums=0, out_shardings=(same, None)), (weights, mel, labels)


def make_faulty(devices):
    return build(devices, ConformerConfig())


def make_fixed(devices):
    return build(devices, ConformerConfig(score_axes=(None, None, "model", None)))
