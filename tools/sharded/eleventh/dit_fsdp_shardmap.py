# mypy: ignore-errors
"""Fault: gathered. The layer's weights are gathered outside of the rematerialised block, so that the
scan saves the whole weights of all layers for the backward pass."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

DEPTH, WIDTH, HEADS = 10, 768, 12
LATENT, CHANNELS = 16, 8  # latent side, channels
BATCH = 16
AXIS = "fsdp"


def dit_shapes():
    """Stacked per-layer weights; every matrix is divided along its first weight dimension."""
    d = WIDTH
    sizes = {"qkv": (d, 3 * d), "proj": (d, d), "fc1": (d, 4 * d), "fc2": (4 * d, d), "ada": (d, 6 * d)}
    layers = {k: jax.ShapeDtypeStruct((DEPTH, *s), jnp.float32) for k, s in sizes.items()}
    ends = {"embed": jax.ShapeDtypeStruct((CHANNELS, d), jnp.float32),
            "final": jax.ShapeDtypeStruct((d, CHANNELS), jnp.float32)}
    return {"layers": layers, "ends": ends}


SPECS = {"layers": P(None, AXIS, None), "ends": P()}


def gather(w):
    """Whole weight of one layer in bfloat16; its transpose scatters the sum of the gradients."""
    return lax.all_gather(w.astype(jnp.bfloat16), AXIS, axis=0, tiled=True)


def modulate(x, shift, scale):
    mu = x.mean(-1, keepdims=True)
    x = (x - mu) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
    return x * (1 + scale[:, None]) + shift[:, None]


@jax.checkpoint  # FAULT
def dit_block(x, cond, w):
    b, n, d = x.shape
    s1, c1, g1, s2, c2, g2 = jnp.split(jax.nn.silu(cond) @ w["ada"], 6, axis=-1)
    q, k, v = jnp.moveaxis((modulate(x, s1, c1) @ w["qkv"]).reshape(b, n, 3, HEADS, -1), 2, 0)
    a = jax.nn.dot_product_attention(q, k, v).reshape(b, n, d)
    x = x + g1[:, None] * (a @ w["proj"])
    return x + g2[:, None] * (jax.nn.gelu(modulate(x, s2, c2) @ w["fc1"]) @ w["fc2"])


def time_embedding(t):
    freq = jnp.exp(-np.log(1e4) * jnp.arange(WIDTH // 2) / (WIDTH // 2))
    ang = t[:, None] * freq
    return jnp.concatenate([jnp.cos(ang), jnp.sin(ang)], -1).astype(jnp.bfloat16)


def denoise(params, noisy, t):
    b = noisy.shape[0]
    x = noisy.reshape(b, LATENT * LATENT, CHANNELS) @ params["ends"]["embed"].astype(jnp.bfloat16)
    cond = time_embedding(t)

    def layer(x, shard):
        w = jax.tree.map(gather, shard)  # FAULT
        return dit_block(x, cond, w), None

    x, _ = lax.scan(layer, x, params["layers"])
    return (x @ params["ends"]["final"].astype(jnp.bfloat16)).reshape(noisy.shape)


def local_loss(params, clean, noise, t):
    alpha = jnp.cos(t * jnp.pi / 2).astype(jnp.bfloat16)[:, None, None, None]
    noisy = alpha * clean + jnp.sqrt(1 - alpha**2) * noise
    error = denoise(params, noisy, t) - noise
    return jnp.mean(jnp.square(error.astype(jnp.float32)))


def update(params, momentum, clean, noise, t, *, lr=1e-2):
    loss, grads = jax.value_and_grad(local_loss)(params, clean, noise, t)
    grads["ends"] = lax.pmean(grads["ends"], AXIS)
    grads["layers"] = jax.tree.map(lambda g: g / lax.axis_size(AXIS), grads["layers"])
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    params = jax.tree.map(lambda p, m: p - lr * m, params, momentum)
    return params, momentum, lax.pmean(loss, AXIS)


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(-1), (AXIS,))
    data = P(AXIS)
    step = jax.shard_map(update, mesh=mesh, in_specs=(SPECS, SPECS, data, data, data),
                         out_specs=(SPECS, SPECS, P()), check_vma=False)
    shapes = dit_shapes()
    params = {
        part: jax.tree.map(
            lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=NamedSharding(mesh, SPECS[part])), tree
        )
        for part, tree in shapes.items()
    }
    like = functools.partial(jax.ShapeDtypeStruct, sharding=NamedSharding(mesh, data))
    latent = like((BATCH, LATENT, LATENT, CHANNELS), jnp.bfloat16)
    return jax.jit(step, donate_argnums=(0, 1)), (params, params, latent, latent, like((BATCH,), jnp.float32))
