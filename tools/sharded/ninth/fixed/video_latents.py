# mypy: ignore-errors
"""Fault: padding. Nine latent frames are split over the eight chips of the "frame" axis, so each holds two and nearly half of the activations are padding; the 64 latent rows would split evenly."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclasses.dataclass(frozen=True)
class VideoConfig:
    batch: int = 8
    frames: int = 9  # one key frame and eight after it
    rows: int = 64
    columns: int = 64
    latent: int = 4
    width: int = 512
    blocks: int = 2
    classes: int = 256


class Sharder:
    def __init__(self, mesh):
        self.mesh = mesh
        self.replicated = NamedSharding(mesh, P())
        self.clip = NamedSharding(mesh, P("data"))
        self.activation = NamedSharding(mesh, P("data", None, "frame", None, None))

    def __call__(self, x):
        return jax.lax.with_sharding_constraint(x, self.activation)


def normalise(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def modulated_block(shard, w, x, condition):
    shift, gain = jnp.split(condition @ w["modulation"], 2, axis=-1)
    h = normalise(x, w["scale"])
    h = h * (1 + gain[:, None, None, None]) + shift[:, None, None, None]
    h = shard(jax.nn.silu(h @ w["up"]))
    return shard(x + h @ w["down"])


def denoise(shard, params, latents, condition):
    x = shard(latents @ params["stem"])
    for w in params["blocks"]:
        x = modulated_block(shard, w, x, condition)
    return x @ params["head"]


def make_fixed(devices):
    cfg = VideoConfig()
    mesh = Mesh(np.array(devices).reshape(2, 8), ("data", "frame"))
    shard = Sharder(mesh)

    def loss_fn(params, batch):
        noisy = batch["latents"] + batch["noise"]
        out = denoise(shard, params, noisy, batch["condition"])
        return jnp.mean(jnp.square(out - batch["noise"]).astype(jnp.float32))

    def step(params, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        return jax.tree.map(lambda p, g: p - 1e-4 * g, params, grads), loss

    def struct(shape, sharding):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

    block = {
        "modulation": (cfg.classes, 2 * cfg.width),
        "scale": (cfg.width,),
        "up": (cfg.width, cfg.width),
        "down": (cfg.width, cfg.width),
    }
    shapes = {
        "stem": (cfg.latent, cfg.width),
        "blocks": [block] * cfg.blocks,
        "head": (cfg.width, cfg.latent),
    }
    params = jax.tree.map(
        lambda shape: struct(shape, shard.replicated),
        shapes,
        is_leaf=lambda x: isinstance(x, tuple),
    )
    clip = (cfg.batch, cfg.frames, cfg.rows, cfg.columns, cfg.latent)
    batch = {
        "latents": struct(clip, shard.clip),
        "noise": struct(clip, shard.clip),
        "condition": struct((cfg.batch, cfg.classes), shard.clip),
    }
    return jax.jit(step, donate_argnums=0), (params, batch)
