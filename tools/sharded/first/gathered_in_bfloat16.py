# mypy: ignore-errors
"""Fault: gathered. Weights are cast and gathered in a scan over 16 chips, and kept as residuals."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "tpu-v5e:4x4"
WIDTH, LAYERS, BATCH = 2048, 12, 4096


def _make(devices, wrap):
    mesh = Mesh(np.array(devices), ("data",))

    def spec(*names):
        return NamedSharding(mesh, P(*names))

    def gather(w):
        return jax.lax.with_sharding_constraint(w.astype(jnp.bfloat16), spec())  # FAULT

    def block(h, w):
        inner = jax.nn.gelu(h @ gather(w["up"]))  # FAULT
        return h + inner @ gather(w["down"]), None  # FAULT

    def train_step(params, x):
        def loss(params):
            h = jax.lax.scan(wrap(block), x, params)[0]
            return (h.astype(jnp.float32) ** 2).mean()

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    params = {
        "up": S((LAYERS, WIDTH, 2 * WIDTH), "float32", sharding=spec(None, "data")),
        "down": S((LAYERS, 2 * WIDTH, WIDTH), "float32", sharding=spec(None, "data")),
    }
    x = S((BATCH, WIDTH), "bfloat16", sharding=spec("data"))
    return jax.jit(train_step, donate_argnums=0), (params, x)


def make_faulty(devices):
    return _make(devices, lambda block: block)  # FAULT


def make_fixed(devices):
    return _make(devices, jax.checkpoint)
