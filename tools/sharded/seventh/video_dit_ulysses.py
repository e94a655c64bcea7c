# mypy: ignore-errors
"""Fault: reshard. Queries, keys and values go from a split over frames to a split over heads through a helper that first
un-shards them, so three full-size tensors per block exist on every chip."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclasses.dataclass
class DiTConfig:
    depth: int = 1
    width: int = 1536
    heads: int = 12
    tokens: int = 65536  # 16 frames of 64 x 64 latents
    batch: int = 1
    in_channels: int = 64


class Layout:
    """Moves activations between the two layouts of Ulysses attention."""

    def __init__(self, mesh, via=()):
        self.mesh = mesh
        self.via = tuple(via)

    def put(self, x, *spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, P(*spec)))

    def to_heads(self, x):
        for spec in self.via:
            x = self.put(x, *spec)
        return self.put(x, None, None, "sp", None)

    def to_sequence(self, x):
        return self.put(x, None, "sp", *([None] * (x.ndim - 2)))


def blockwise_attention(q, k, v, chunk=64):
    b, n, h, d = q.shape
    qs = jnp.moveaxis(q.reshape(b, n // chunk, chunk, h, d), 1, 0)

    def one(_, qc):
        s = jnp.einsum("bqhd,bkhd->bhqk", qc, k, preferred_element_type=jnp.float32) / d**0.5
        p = jax.nn.softmax(s, axis=-1).astype(v.dtype)
        return None, jnp.einsum("bhqk,bkhd->bqhd", p, v)

    _, out = jax.lax.scan(one, None, qs)
    return jnp.moveaxis(out, 0, 1).reshape(b, n, h, d)


class DiTBlock(nn.Module):
    cfg: DiTConfig
    layout: Layout

    @nn.compact
    def __call__(self, x, cond):
        c = self.cfg
        dense = lambda f, name: nn.Dense(f, use_bias=False, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16, name=name)
        shift, scale, gate = jnp.split(dense(3 * c.width, "ada")(nn.silu(cond))[:, None], 3, axis=-1)
        h = nn.LayerNorm(use_bias=False, use_scale=False, dtype=jnp.bfloat16)(x) * (1 + scale) + shift
        qkv = dense(3 * c.width, "qkv")(h).reshape(c.batch, c.tokens, 3, c.heads, -1)
        q, k, v = (self.layout.to_heads(qkv[:, :, i]) for i in range(3))
        a = blockwise_attention(q, k, v)
        a = self.layout.to_sequence(a).reshape(c.batch, c.tokens, c.width)
        x = x + gate * dense(c.width, "proj")(a)
        h = nn.gelu(dense(2 * c.width, "fc1")(x))
        return self.layout.to_sequence(x + dense(c.width, "fc2")(h))


class VideoDiT(nn.Module):
    cfg: DiTConfig
    layout: Layout

    @nn.compact
    def __call__(self, latents, cond):
        x = nn.Dense(self.cfg.width, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16, name="patchify")(latents)
        for i in range(self.cfg.depth):
            x = DiTBlock(self.cfg, self.layout, name=f"block{i}")(x, cond)
        return nn.Dense(self.cfg.in_channels, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16, name="head")(x)


def sampler_step(devices, via):
    cfg = DiTConfig()
    mesh = Mesh(np.array(devices), ("sp",))
    model = VideoDiT(cfg, Layout(mesh, via))
    seq = NamedSharding(mesh, P(None, "sp", None))
    rep = NamedSharding(mesh, P())
    latents = jax.ShapeDtypeStruct((cfg.batch, cfg.tokens, cfg.in_channels), jnp.bfloat16, sharding=seq)
    cond = jax.ShapeDtypeStruct((cfg.batch, cfg.width), jnp.bfloat16, sharding=rep)
    variables = jax.eval_shape(model.init, jax.random.key(0), latents, cond)
    variables = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=rep), variables)

    def euler(variables, latents, cond, dt):
        return latents - dt * model.apply(variables, latents, cond)

    dt = jax.ShapeDtypeStruct((), jnp.bfloat16, sharding=rep)
    return jax.jit(euler, donate_argnums=1, out_shardings=seq), (variables, latents, cond, dt)


def make_faulty(devices):
    return sampler_step(devices, via=[(None, None, None, None)])  # FAULT


def make_fixed(devices):
    return sampler_step(devices, via=[])
