# mypy: ignore-errors
"""Fault: reshard. Joined halves are asked for along the other dimension: through a full copy."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "cpu"


def _make(devices, joined_by):
    mesh = Mesh(np.array(devices).reshape(2, 2, 2), ("a", "b", "c"))

    def spec(*names):
        return NamedSharding(mesh, P(*names))

    @jax.jit
    def join(x, y):
        both = jnp.concatenate([jnp.sin(x), jnp.cos(y)], axis=0)  # FAULT
        both = jax.lax.with_sharding_constraint(both, spec(*joined_by))  # FAULT
        return jnp.tanh(both)

    x = S((2048, 2048), "float32", sharding=spec("c", "b"))
    return join, (x, x)


def make_faulty(devices):
    return _make(devices, (None, ("a", "b")))  # FAULT


def make_fixed(devices):
    return _make(devices, ("c", "b"))
