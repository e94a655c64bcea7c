# mypy: ignore-errors
"""Fault: gathered. Fully sharded layers, unrolled: XLA gathers each weight once for both passes."""

import functools

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "cpu"
WIDTH, LAYERS, BATCH = 512, 8, 512


def _layer(x, w):
    return x + jax.nn.gelu(x @ w["up"]) @ w["down"]  # FAULT


def _make(devices, layer):
    mesh = Mesh(np.array(devices), ("data",))
    split = NamedSharding(mesh, P("data"))

    def train_step(params, x):
        def loss(params):
            h = x
            for w in params:
                h = layer(h, w)
            return (h**2).mean()

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    w = {
        "up": S((WIDTH, 4 * WIDTH), "float32", sharding=split),
        "down": S((4 * WIDTH, WIDTH), "float32", sharding=split),
    }
    x = S((BATCH, WIDTH), "float32", sharding=split)
    return jax.jit(train_step, donate_argnums=0, out_shardings=split), ([w] * LAYERS, x)


def make_faulty(devices):
    return _make(devices, _layer)


def make_fixed(devices):
    policy = jax.checkpoint_policies.dots_saveable
    return _make(devices, functools.partial(jax.checkpoint, policy=policy)(_layer))
