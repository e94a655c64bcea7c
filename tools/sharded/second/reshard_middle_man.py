# mypy: ignore-errors
"""Fault: reshard. A matrix goes from rows to columns by way of a constraint that puts it on every device ("gather, then slice")."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
ROWS, COLS = 8192, 8192


def build(devices, through):
    mesh = Mesh(np.array(devices), ("p",))
    to = lambda x, *spec: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    def normalise_both_ways(x):
        x = jnp.exp(x - x.max(1, keepdims=True))
        x = to(x / x.sum(1, keepdims=True), "p", None)
        if through:
            x = to(x)  # FAULT
        x = to(x, None, "p")  # FAULT
        return jnp.cumsum(x, 0) / jnp.sum(x, 0)

    return jax.jit(normalise_both_ways), (jax.ShapeDtypeStruct((ROWS, COLS), jnp.float32, sharding=NamedSharding(mesh, P("p"))),)


def make_faulty(devices):
    return build(devices, through=True)


def make_fixed(devices):
    return build(devices, through=False)
