# mypy: ignore-errors
"""Fault: reshard. Activations go from batch over both axes of a 2 x 4 mesh to time over `x` and features over `y` in one constraint; XLA has no direct way and makes a whole copy on every device in between."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
BATCH, TIME, WIDTH = 64, 512, 512


def model(mesh, steps):
    at = lambda v, *spec: jax.lax.with_sharding_constraint(v, NamedSharding(mesh, P(*spec)))

    def apply(tokens_by_time, mix):
        h = jnp.tanh(tokens_by_time) * 2.0
        h = at(h, ("x", "y"))
        for spec in steps:
            h = at(h, *spec)  # FAULT
        h = jax.lax.associative_scan(jnp.add, h, axis=0)
        return h * mix

    batch = jax.ShapeDtypeStruct((BATCH, TIME, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P(("x", "y"))))
    mix = jax.ShapeDtypeStruct((WIDTH,), jnp.float32, sharding=NamedSharding(mesh, P()))
    return jax.jit(apply, out_shardings=NamedSharding(mesh, P(None, "x", "y"))), (batch, mix)


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("x", "y"))
    return model(mesh, [(None, "x", "y")])  # FAULT


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(2, 4), ("x", "y"))
    return model(mesh, [("x", None, "y"), (None, "x", "y")])
