# mypy: ignore-errors
"""Fault: padding. A speech encoder has five heads and splits its attention by head over four chips, so each has room for two heads, where the batch would divide evenly."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TARGET = "tpu-v5e:2x2"
BATCH, FRAMES, HEADS, WIDTH, LAYERS = 8, 2048, 5, 64, 2
DIM = HEADS * WIDTH
BY_HEAD = PartitionSpec(None, "chip", None, None)  # FAULT
BY_CLIP = PartitionSpec("chip", None, None, None)


def scores(q, k, sharding):
    s = jnp.einsum("bhqk,bhtk->bhqt", q, k) * WIDTH**-0.5
    return lax.with_sharding_constraint(s, sharding)  # FAULT


def attention(w, x, sharding):
    split = lambda a: a.reshape(BATCH, FRAMES, HEADS, WIDTH).transpose(0, 2, 1, 3)
    q, k, v = (lax.with_sharding_constraint(split(x @ w[n]), sharding) for n in "qkv")  # FAULT
    p = jax.nn.softmax(scores(q, k, sharding))  # FAULT
    o = jnp.einsum("bhqt,bhtk->bqhk", p, v)
    return o.reshape(BATCH, FRAMES, DIM) @ w["o"]


def encoder(weights, mel, sharding):
    x = mel @ weights["mel"]
    for w in weights["layers"]:
        x = x + attention(w, x, sharding)
        x = x + jax.nn.gelu(x @ w["up"]) @ w["down"]
    return x


def build(devices, spec):
    mesh = Mesh(np.array(devices), ("chip",))
    attention_sharding = NamedSharding(mesh, spec)  # FAULT
    rep, clips = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("chip"))
    w = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=rep)
    layer = {n: w(DIM, DIM) for n in "qkvo"} | {"up": w(DIM, 4 * DIM), "down": w(4 * DIM, DIM)}
    weights = {"mel": w(80, DIM), "layers": [layer] * LAYERS}

    def train(weights, mel, target):
        loss = lambda w: jnp.mean((encoder(w, mel, attention_sharding) - target) ** 2)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, weights, jax.grad(loss)(weights))

    data = lambda n: jax.ShapeDtypeStruct((BATCH, FRAMES, n), jnp.float32, sharding=clips)
    return jax.jit(train, donate_argnums=0, out_shardings=rep), (weights, data(80), data(DIM))


def make_faulty(devices):
    return build(devices, BY_HEAD)  # FAULT


def make_fixed(devices):
    return build(devices, BY_CLIP)
