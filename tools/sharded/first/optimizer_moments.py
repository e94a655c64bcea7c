# mypy: ignore-errors
"""Fault: optimizer. Adam's second moments are on every chip, parameters and first moments split."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "tpu-v5e:2x2"
WIDTH, LAYERS, BATCH = 1024, 6, 4096


def _step(params, opt_state, x):
    def loss(params):
        h = x
        for w in params:
            h = h + jax.nn.gelu(h @ w["up"]) @ w["down"]
        return (h**2).mean()

    grads = jax.grad(loss)(params)
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, opt_state["mu"], grads)
    nu = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, opt_state["nu"], grads)
    params = jax.tree.map(lambda p, m, v: p - m / (jnp.sqrt(v) + 1e-8), params, mu, nu)
    return params, {"mu": mu, "nu": nu}


def _make(devices, moments_by):
    mesh = Mesh(np.array(devices), ("data",))

    def tree(spec):
        sharding = NamedSharding(mesh, spec)
        up = S((WIDTH, 4 * WIDTH), "float32", sharding=sharding)
        down = S((4 * WIDTH, WIDTH), "float32", sharding=sharding)
        return [{"up": up, "down": down}] * LAYERS

    def moments(spec):
        sharding = NamedSharding(mesh, spec)
        up = S((WIDTH, 4 * WIDTH), "float32", sharding=sharding)  # FAULT
        down = S((4 * WIDTH, WIDTH), "float32", sharding=sharding)  # FAULT
        return [{"up": up, "down": down}] * LAYERS

    state = {"mu": tree(P("data")), "nu": moments(moments_by)}
    x = S((BATCH, WIDTH), "float32", sharding=NamedSharding(mesh, P("data")))
    return jax.jit(_step, donate_argnums=(0, 1)), (tree(P("data")), state, x)


def make_faulty(devices):
    return _make(devices, P())  # FAULT


def make_fixed(devices):
    return _make(devices, P("data"))
