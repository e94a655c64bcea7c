# mypy: ignore-errors
"""Fault: reshard. The frames are split over both axes of the mesh, the patches over "s" alone; the partitioner knows no
way from one to the other but to make the activations whole on every chip.

Inference of an axial network on cardiac ultrasound videos: each layer mixes along the frames, then along the
patches, then the channels.
"""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"


@dataclass(frozen=True)
class Config:
    videos: int = 16
    frames: int = 128
    patches: int = 1024
    channels: int = 256
    layers: int = 3
    measures: int = 12


class Axial:
    def __init__(self, config, mesh):
        self.config = config
        self.mesh = mesh
        self.by_frame = self.spec(None, ("t", "s"), None, None)
        self.by_patch = self.spec(None, None, "s", None)  # FAULT

    def spec(self, *names):
        return NamedSharding(self.mesh, P(*names))

    def norm(self, x):
        return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)

    def over_time(self, x, weights):
        x = jax.lax.with_sharding_constraint(x, self.by_patch)  # FAULT
        x = x + jnp.einsum("uf,bfpc->bupc", weights["time"], self.norm(x))
        return jax.lax.with_sharding_constraint(x, self.by_patch)

    def over_space(self, x, weights):
        x = jax.lax.with_sharding_constraint(x, self.by_frame)
        return x + jnp.einsum("qp,bfpc->bfqc", weights["space"], self.norm(x))

    def channels(self, x, weights):
        h = jax.nn.gelu(jnp.einsum("bfpc,ch->bfph", self.norm(x), weights["up"]))
        x = x + jnp.einsum("bfph,hc->bfpc", h, weights["down"])
        return jax.lax.with_sharding_constraint(x, self.by_frame)

    def __call__(self, params, video):
        x = video.astype(jnp.float32) / 255.0 - 0.5

        def layer(x, weights):
            x = self.over_time(x, weights)
            x = self.over_space(x, weights)
            return self.channels(x, weights), None

        x, _ = jax.lax.scan(layer, x, params["layers"])
        pooled = self.norm(x).mean(axis=(1, 2))
        return pooled @ params["head"]

    def arguments(self):
        c = self.config

        def array(*shape, sharding=self.spec(), dtype=jnp.float32):
            return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

        layers = {
            "time": array(c.layers, c.frames, c.frames),
            "space": array(c.layers, c.patches, c.patches),
            "up": array(c.layers, c.channels, 2 * c.channels),
            "down": array(c.layers, 2 * c.channels, c.channels),
        }
        params = {"layers": layers, "head": array(c.channels, c.measures)}
        video = array(c.videos, c.frames, c.patches, c.channels, sharding=self.by_frame, dtype=jnp.uint8)
        return params, video


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(4, 4), ("t", "s"))
    model = Axial(Config(), mesh)
    return jax.jit(model, out_shardings=NamedSharding(mesh, P())), model.arguments()
