# mypy: ignore-errors
"""Fault: reshard. The sequence-parallel attention of the video model goes from sequence to head shards by gathering the whole sequence
of all heads and slicing out its heads; an all-to-all would never hold q, k and v whole."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class VideoConfig:
    frames: int = 24
    grid: int = 24
    dim: int = 1024
    heads: int = 16
    ff: int = 4096
    blocks: int = 2
    batch: int = 1

    @property
    def tokens(self):
        return self.frames * self.grid * self.grid


def seq_to_heads_gather(x, axis):
    """[b, s/n, h, d] -> [b, s, h/n, d]"""
    n = lax.axis_size(axis)
    whole = lax.all_gather(x, axis, axis=1, tiled=True)  # FAULT
    per = x.shape[2] // n
    return lax.dynamic_slice_in_dim(whole, lax.axis_index(axis) * per, per, axis=2)


def seq_to_heads_a2a(x, axis):
    return lax.all_to_all(x, axis, split_axis=2, concat_axis=1, tiled=True)


def heads_to_seq(x, axis):
    return lax.all_to_all(x, axis, split_axis=1, concat_axis=2, tiled=True)


def chunked_attention(q, k, v, chunk):
    b, s, h, d = q.shape

    def one(qc):
        a = jnp.einsum("bqhd,bkhd->bhqk", qc, k) * d**-0.5
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(a, axis=-1), v)

    q = jnp.moveaxis(q.reshape(b, s // chunk, chunk, h, d), 1, 0)
    return jnp.moveaxis(lax.map(one, q), 0, 1).reshape(b, s, h, d)


def modulate(x, shift, scale):
    mu = x.mean(-1, keepdims=True)
    x = (x - mu) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
    return x * (1 + scale[:, None]) + shift[:, None]


def block(cfg, to_heads, x, cond, w):
    b, s, d = x.shape
    s1, g1, s2, g2 = jnp.split(jax.nn.silu(cond) @ w["ada"], 4, axis=-1)
    h = modulate(x, s1, g1)
    qkv = (h @ w["qkv"]).reshape(b, s, cfg.heads, 3 * d // cfg.heads)
    q, k, v = jnp.split(to_heads(qkv, "seq"), 3, axis=-1)
    o = heads_to_seq(chunked_attention(q, k, v, 256), "seq").reshape(b, s, d)
    x = x + o @ w["out"]
    return x + jax.nn.gelu(modulate(x, s2, g2) @ w["up"]) @ w["down"]


def denoise_local(cfg, to_heads, weights, x, cond, sigma):
    v = x
    for w in weights:
        v = block(cfg, to_heads, v, cond, w)
    return x - sigma[:, None, None] * v


def build(devices, to_heads):
    cfg = VideoConfig()
    mesh = Mesh(np.array(devices), ("seq",))
    d = cfg.dim
    shapes = {"ada": (d, 4 * d), "qkv": (d, 3 * d), "out": (d, d), "up": (d, cfg.ff), "down": (cfg.ff, d)}

    def struct(shape, dtype, *spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    weights = [{k: struct(s, jnp.float32) for k, s in shapes.items()} for _ in range(cfg.blocks)]
    latents = struct((cfg.batch, cfg.tokens, d), jnp.float32, None, "seq")
    cond = struct((cfg.batch, d), jnp.float32)
    sigma = struct((cfg.batch,), jnp.float32)

    denoise = jax.shard_map(functools.partial(denoise_local, cfg, to_heads), mesh=mesh,
                            in_specs=(P(), P(None, "seq"), P(), P()), out_specs=P(None, "seq"))
    return jax.jit(denoise, donate_argnums=1), (weights, latents, cond, sigma)


def make_faulty(devices):
    return build(devices, seq_to_heads_gather)


def make_fixed(devices):
    return build(devices, seq_to_heads_a2a)
