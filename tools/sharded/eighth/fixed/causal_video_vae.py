# mypy: ignore-errors
"""Fault: padding. A clip has 1 + 16 frames, and the activations are split by frame over 16 chips: each chip holds two
frames' worth of memory for seventeen frames, so nearly half of it is padding."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:4x4"

FRAMES = 1 + 16
SIDE = 256
CHANNELS = 96
LATENT = 16
DEPTH = 3

mesh_axes = ("chips",)
clip_spec = P(None, None, "chips", None, None)  # (batch, frame, row, column, channel)
activation_spec = P(None, None, "chips", None, None)


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def causal_mix(x, taps):
    """Every frame sees itself and the two before it; the first frame is repeated to the left."""
    past = jnp.concatenate([x[:, :1], x[:, :1], x], axis=1)
    return sum(past[:, i : i + x.shape[1]] * taps[i] for i in range(3))


def make_fixed(devices):
    mesh = Mesh(np.array(devices), mesh_axes)

    def place(x):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, activation_spec))

    def stage(x, w):
        @jax.checkpoint
        def block(x, w):
            x = place(x + causal_mix(norm(x), w["time"]))
            x = place(x + jax.nn.silu(norm(x) @ w["up"]) @ w["down"])
            return x, None

        x, _ = jax.lax.scan(block, x, w)
        return x

    def autoencode(params, clip, noise):
        x = place(clip @ params["inp"])
        moments = stage(x, params["encoder"]) @ params["moments"]
        mean, logvar = jnp.split(moments, 2, axis=-1)
        latent = place(mean + jnp.exp(0.5 * logvar) * noise)
        y = stage(place(latent @ params["lift"]), params["decoder"])
        return y @ params["out"], mean, logvar

    def loss_fn(params, clip, noise):
        recon, mean, logvar = autoencode(params, clip, noise)
        kl = 0.5 * jnp.mean(mean**2 + jnp.exp(logvar) - 1.0 - logvar)
        return jnp.mean(jnp.abs(recon - clip)) + 1e-6 * kl

    def step(params, clip, noise):
        loss, grads = jax.value_and_grad(loss_fn)(params, clip, noise)
        return jax.tree.map(lambda p, g: p - 1e-4 * g, params, grads), loss

    whole = NamedSharding(mesh, P())

    def w(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=whole)

    def stage_params():
        return {
            "time": w(DEPTH, 3, CHANNELS),
            "up": w(DEPTH, CHANNELS, CHANNELS),
            "down": w(DEPTH, CHANNELS, CHANNELS),
        }

    params = {
        "inp": w(4, CHANNELS),
        "encoder": stage_params(),
        "moments": w(CHANNELS, 2 * LATENT),
        "lift": w(LATENT, CHANNELS),
        "decoder": stage_params(),
        "out": w(CHANNELS, 4),
    }
    clips = NamedSharding(mesh, clip_spec)
    clip = jax.ShapeDtypeStruct((1, FRAMES, SIDE, SIDE, 4), jnp.float32, sharding=clips)
    noise = jax.ShapeDtypeStruct((1, FRAMES, SIDE, SIDE, LATENT), jnp.float32, sharding=clips)
    return jax.jit(step, donate_argnums=0, out_shardings=(whole, whole)), (params, clip, noise)
