# mypy: ignore-errors
"""Fault: gathered. A data-parallel perceptron stack with split weights that gathers all layers at once before the loss, and keeps them until the backward pass is over."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
DEPTH, WIDTH, BATCH = 12, 1024, 512


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("dp",))
    split, whole = NamedSharding(mesh, P(None, "dp")), NamedSharding(mesh, P())

    def loss(weights, x):
        weights = jax.lax.with_sharding_constraint(weights, whole)  # FAULT
        layer = lambda x, w: (x + jnp.tanh(x @ w), None)  # FAULT
        x, _ = jax.lax.scan(layer, x, weights)
        return jnp.mean(x ** 2)

    def step(weights, x):
        return weights - 0.1 * jax.grad(loss)(weights, x)

    w = jax.ShapeDtypeStruct((DEPTH, WIDTH, WIDTH), jnp.float32, sharding=split)
    x = jax.ShapeDtypeStruct((BATCH, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P("dp")))
    return jax.jit(step, donate_argnums=0, out_shardings=split), (w, x)


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("dp",))
    split, one = NamedSharding(mesh, P(None, "dp")), NamedSharding(mesh, P())
    rows = NamedSharding(mesh, P("dp"))

    def loss(weights, x):
        @jax.checkpoint
        def layer(x, w):
            w = jax.lax.with_sharding_constraint(w, one)
            return jax.lax.with_sharding_constraint(x + jnp.tanh(x @ w), rows), None

        x, _ = jax.lax.scan(layer, x, weights)
        return jnp.mean(x ** 2)

    def step(weights, x):
        return weights - 0.1 * jax.grad(loss)(weights, x)

    w = jax.ShapeDtypeStruct((DEPTH, WIDTH, WIDTH), jnp.float32, sharding=split)
    x = jax.ShapeDtypeStruct((BATCH, WIDTH), jnp.float32, sharding=rows)
    return jax.jit(step, donate_argnums=0, out_shardings=split), (w, x)
