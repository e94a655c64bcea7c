# mypy: ignore-errors
"""Clean. The token stream of a causal video transformer is split by patch, 960 of them over 8 devices.

One denoising step of a factorised (space, then time) video diffusion transformer. The batch is a
pair of guided / unguided latents, so the devices are used for sequence parallelism only.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TARGET = "cpu"


@dataclasses.dataclass(frozen=True)
class VideoConfig:
    frames: int = 9  # one key frame and eight followers from the causal VAE
    height: int = 24
    width: int = 40
    channels: int = 16
    dim: int = 1024
    heads: int = 16
    blocks: int = 6
    guidance: float = 6.0

    @property
    def patches(self):
        return self.height * self.width

    @property
    def head_dim(self):
        return self.dim // self.heads


class SequenceParallel:
    """Where the token stream (batch, frames, patches, dim) lives between the operations of a block."""

    axes = ("batch", "frames", "patches", "dim")

    def __init__(self, mesh, split):
        self.sharding = NamedSharding(mesh, PartitionSpec(*("sp" if a == split else None for a in self.axes)))

    def __call__(self, x):
        return jax.lax.with_sharding_constraint(x, self.sharding)


def rms(x, scale):
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def split_heads(cfg, x):
    return x.reshape(*x.shape[:-1], cfg.heads, cfg.head_dim)


def space_attention(cfg, lay, p, x):
    """Every patch of a frame looks at the other patches of the same frame."""
    qkv = x @ p["qkv"]
    q, k, v = (split_heads(cfg, t) for t in jnp.split(qkv, 3, axis=-1))
    logits = jnp.einsum("btqhd,btkhd->bthqk", q, k) / math.sqrt(cfg.head_dim)
    probs = jax.nn.softmax(logits.astype(jnp.float32), axis=-1).astype(x.dtype)
    out = jnp.einsum("bthqk,btkhd->btqhd", probs, v)
    return lay(out.reshape(x.shape)) @ p["out"]


def time_attention(cfg, lay, p, x):
    """Every patch position looks at its own past frames."""
    qkv = x @ p["qkv"]
    q, k, v = (split_heads(cfg, t) for t in jnp.split(qkv, 3, axis=-1))
    logits = jnp.einsum("bqnhd,bknhd->bnhqk", q, k) / math.sqrt(cfg.head_dim)
    causal = jnp.tril(jnp.ones((cfg.frames, cfg.frames), bool))
    probs = jax.nn.softmax(jnp.where(causal, logits, -1e9).astype(jnp.float32), axis=-1)
    out = jnp.einsum("bnhqk,bknhd->bqnhd", probs.astype(x.dtype), v)
    return lay(out.reshape(x.shape)) @ p["out"]


def block(cfg, lay, p, x, temb):
    shift, scale, gate = jnp.split(temb @ p["mod"], 3, axis=-1)

    def modulate(y):
        return y * (1 + scale) + shift

    x = x + gate * space_attention(cfg, lay, p["space"], modulate(rms(x, p["n1"])))
    x = x + gate * time_attention(cfg, lay, p["time"], modulate(rms(x, p["n2"])))
    h = jax.nn.gelu(modulate(rms(x, p["n3"])) @ p["up"])
    return lay(x + gate * (h @ p["down"]))


def timestep_embedding(t, dim):
    freqs = jnp.exp(-math.log(1e4) * jnp.arange(dim // 2) / (dim // 2))
    ang = t * freqs
    return jnp.concatenate([jnp.cos(ang), jnp.sin(ang)])


def denoise_step(cfg, lay, params, latents, t, dt):
    temb = timestep_embedding(t, cfg.dim).astype(jnp.bfloat16)
    x = lay(latents.astype(jnp.bfloat16) @ params["embed"])

    def layer(h, p):
        return block(cfg, lay, p, h, temb), None

    x, _ = jax.lax.scan(layer, x, params["blocks"])
    velocity = (rms(x, params["norm"]) @ params["unembed"]).astype(jnp.float32)
    cond, uncond = velocity[:1], velocity[1:]
    guided = uncond + cfg.guidance * (cond - uncond)
    return latents - dt * jnp.concatenate([guided, guided])


def parameter_shapes(cfg):
    d, n = cfg.dim, cfg.blocks
    attn = {"qkv": (n, d, 3 * d), "out": (n, d, d)}
    blocks = {"space": attn, "time": dict(attn), "mod": (n, d, 3 * d), "up": (n, d, 2 * d), "down": (n, 2 * d, d)}
    blocks.update(n1=(n, d), n2=(n, d), n3=(n, d))
    return {"embed": (cfg.channels, d), "unembed": (d, cfg.channels), "norm": (d,), "blocks": blocks}


def make_fixed(devices):
    cfg = VideoConfig()
    mesh = Mesh(np.array(devices).reshape(8), ("sp",))
    lay = SequenceParallel(mesh, split="patches")

    def weight(shape):
        # stored split over the input features, gathered by XLA one block at a time
        spec = PartitionSpec(None, "sp") if len(shape) == 3 else PartitionSpec()
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, spec))

    params = jax.tree.map(weight, parameter_shapes(cfg), is_leaf=lambda s: isinstance(s, tuple))
    noise = NamedSharding(mesh, PartitionSpec(None, None, "sp"))  # as the sampler draws it
    latents = jax.ShapeDtypeStruct((2, cfg.frames, cfg.patches, cfg.channels), jnp.float32, sharding=noise)
    scalar = jax.ShapeDtypeStruct((), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec()))
    step = jax.jit(
        lambda params, latents, t, dt: denoise_step(cfg, lay, params, latents, t, dt),
        donate_argnums=1,
        out_shardings=noise,
    )
    return step, (params, latents, scalar, scalar)
