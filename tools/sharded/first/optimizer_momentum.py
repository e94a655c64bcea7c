# mypy: ignore-errors
"""Fault: optimizer. Stacked layers over 16 chips; momentum is split over one of both axes."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "tpu-v5e:4x4"
WIDTH, LAYERS, BATCH = 2048, 8, 4096


def _step(params, momentum, x):
    def loss(params):
        def block(h, w):
            return h + jax.nn.gelu(h @ w["up"]) @ w["down"], None

        return (jax.lax.scan(jax.checkpoint(block), x, params)[0] ** 2).mean()

    grads = jax.grad(loss)(params)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum


def _make(devices, momentum_by):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("fsdp", "tensor"))
    both = P(None, "fsdp", "tensor")

    def weight(rows, columns, spec):
        return S((LAYERS, rows, columns), "float32", sharding=NamedSharding(mesh, spec))

    params = {"up": weight(WIDTH, 4 * WIDTH, both), "down": weight(4 * WIDTH, WIDTH, both)}
    momentum = {
        "up": weight(WIDTH, 4 * WIDTH, momentum_by),  # FAULT
        "down": weight(4 * WIDTH, WIDTH, momentum_by),  # FAULT
    }
    x = S((BATCH, WIDTH), "float32", sharding=NamedSharding(mesh, P("fsdp")))
    return jax.jit(_step, donate_argnums=(0, 1)), (params, momentum, x)


def make_faulty(devices):
    return _make(devices, P(None, "fsdp"))  # FAULT


def make_fixed(devices):
    return _make(devices, P(None, "fsdp", "tensor"))
