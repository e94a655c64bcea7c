# mypy: ignore-errors
"""Fault: donated. The averaged weights come in split over both axes and leave split over "model" alone, so their
donated buffers cannot be reused and old and new averages are held together.

Training step of a diffusion transformer with an exponential moving average of the weights.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

WIDTH, HEADS, DEPTH = 1024, 16, 8
BATCH, PATCHES, CHANNELS = 16, 256, 64

TRAIN_LAYOUT = {
    "ada": P(None, "data", "model"),
    "qkv": P(None, "data", "model"),
    "out": P(None, "model", "data"),
    "up": P(None, "data", "model"),
    "down": P(None, "model", "data"),
    "patch": P(None, "model"),
    "unpatch": P("model", None),
}
SAMPLER_LAYOUT = {
    "ada": P(None, None, "model"),
    "qkv": P(None, None, "model"),
    "out": P(None, "model", None),
    "up": P(None, None, "model"),
    "down": P(None, "model", None),
    "patch": P(None, "model"),
    "unpatch": P("model", None),
}


def weight_shapes():
    d = WIDTH
    return {
        "ada": (DEPTH, d, 6 * d), "qkv": (DEPTH, d, 3 * d), "out": (DEPTH, d, d),
        "up": (DEPTH, d, 4 * d), "down": (DEPTH, 4 * d, d), "patch": (CHANNELS, d), "unpatch": (d, CHANNELS),
    }


def modulate(x, shift, scale):
    mean = x.mean(-1, keepdims=True)
    x = (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
    return x * (1 + scale[:, None]) + shift[:, None]


def timestep_embedding(t):
    freqs = jnp.exp(-jnp.arange(WIDTH // 2) / (WIDTH // 2) * 9.21)
    angles = t[:, None] * freqs
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


def denoise(weights, noisy, t):
    cond = jax.nn.silu(timestep_embedding(t))

    @jax.checkpoint
    def layer(x, w):
        shift1, scale1, gate1, shift2, scale2, gate2 = jnp.split(cond @ w["ada"], 6, axis=-1)
        q, k, v = jnp.split(modulate(x, shift1, scale1) @ w["qkv"], 3, axis=-1)
        q, k, v = (y.reshape(*y.shape[:2], HEADS, -1) for y in (q, k, v))
        attended = jax.nn.dot_product_attention(q, k, v).reshape(x.shape)
        x = x + gate1[:, None] * (attended @ w["out"])
        x = x + gate2[:, None] * (jax.nn.gelu(modulate(x, shift2, scale2) @ w["up"]) @ w["down"])
        return x, None

    stacked = {name: w for name, w in weights.items() if "patch" not in name}
    x, _ = jax.lax.scan(layer, noisy @ weights["patch"], stacked)
    return x @ weights["unpatch"]


def make_step(optimizer, decay=0.9999):
    def loss(weights, images, key):
        k_time, k_noise = jax.random.split(key)
        t = jax.random.uniform(k_time, (BATCH,))
        noise = jax.random.normal(k_noise, images.shape)
        mixed = (1 - t)[:, None, None] * images + t[:, None, None] * noise
        return jnp.mean((denoise(weights, mixed, 1000 * t) - (noise - images)) ** 2)

    def step(state, images, key):
        grads = jax.grad(loss)(state["weights"], images, key)
        updates, opt = optimizer.update(grads, state["opt"], state["weights"])
        weights = optax.apply_updates(state["weights"], updates)
        ema = jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, state["ema"], weights)
        return {"weights": weights, "ema": ema, "opt": opt}

    return step


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(4, 2), ("data", "model"))
    optimizer = optax.sgd(1e-3, momentum=0.9)

    train = {name: NamedSharding(mesh, spec) for name, spec in TRAIN_LAYOUT.items()}
    sampler = {name: NamedSharding(mesh, spec) for name, spec in SAMPLER_LAYOUT.items()}

    def abstract(shardings):
        return {n: jax.ShapeDtypeStruct(s, jnp.float32, sharding=shardings[n]) for n, s in weight_shapes().items()}

    weights, ema = abstract(train), abstract(train)
    opt_shapes = jax.eval_shape(optimizer.init, weights)
    opt_shardings = optax.tree_utils.tree_map_params(optimizer, lambda _, s: s, opt_shapes, train)
    opt = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), opt_shapes, opt_shardings)
    state = {"weights": weights, "ema": ema, "opt": opt}
    out = {"weights": train, "ema": sampler, "opt": opt_shardings}  # FAULT

    images = jax.ShapeDtypeStruct((BATCH, PATCHES, CHANNELS), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype, sharding=NamedSharding(mesh, P()))
    jitted = jax.jit(make_step(optimizer), donate_argnums=0, out_shardings=out)  # FAULT
    return jitted, (state, images, key)
