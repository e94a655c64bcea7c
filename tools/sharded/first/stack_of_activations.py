# mypy: ignore-errors
"""Fault: stack. Layers over 16 chips whose activations a constraint keeps whole along the batch."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "tpu-v5e:4x4"
WIDTH, LAYERS, BATCH = 2048, 8, 4096


def _make(devices, rows):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))

    def spec(*names):
        return NamedSharding(mesh, P(*names))

    def train_step(params, x):
        def block(h, w):
            h = jax.lax.with_sharding_constraint(h, spec(*rows))  # FAULT
            return h + jax.nn.gelu(h @ w["up"]) @ w["down"], None

        def loss(params):
            return (jax.lax.scan(block, x, params)[0] ** 2).mean()  # FAULT

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    params = {
        "up": S((LAYERS, WIDTH, 4 * WIDTH), "float32", sharding=spec(None, "data", "model")),
        "down": S((LAYERS, 4 * WIDTH, WIDTH), "float32", sharding=spec(None, "model", "data")),
    }
    x = S((BATCH, WIDTH), "float32", sharding=spec("data"))
    return jax.jit(train_step, donate_argnums=0), (params, x)


def make_faulty(devices):
    return _make(devices, ())


def make_fixed(devices):
    return _make(devices, ("data",))
