# mypy: ignore-errors
"""Fault: gathered. ZeRO-3 by hand in shard_map on four chips: each layer's weight is all-gathered in the forward pass and stays as a residual for the backward pass."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
LAYERS, WIDTH, HIDDEN, ROWS = 6, 2048, 4096, 1024


def feed_forward(x, up, down):
    up = jax.lax.all_gather(up, "z", axis=0, tiled=True)  # FAULT
    down = jax.lax.all_gather(down, "z", axis=0, tiled=True)  # FAULT
    return x + jax.nn.gelu(x @ up) @ down  # FAULT


def local_loss(params, x, layer):
    for up, down in params:
        x = layer(x, up, down)
    return jnp.mean(jnp.square(x.astype(jnp.float32)))


def build(devices, layer):
    mesh = Mesh(np.array(devices), ("z",))
    split = NamedSharding(mesh, P("z"))

    @partial(jax.shard_map, mesh=mesh, in_specs=(P("z"), P("z")), out_specs=P("z"))
    def step(params, x):
        g = jax.grad(local_loss)(params, x, layer)
        return jax.tree.map(lambda p, d: p - 0.01 * d, params, g)

    arr = lambda *s: jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=split)
    params = [(arr(WIDTH, HIDDEN), arr(HIDDEN, WIDTH)) for _ in range(LAYERS)]
    return jax.jit(step, donate_argnums=0), (params, arr(4 * ROWS, WIDTH))


def make_faulty(devices):
    return build(devices, feed_forward)


def make_fixed(devices):
    return build(devices, jax.checkpoint(feed_forward))
