# mypy: ignore-errors
"""Fault: dropped. Class prototypes (1001 of them) are computed and returned under a constraint that eight devices cannot honour, so every device returns all of them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
CLASSES, FEATURES, ROWS = 1001, 16384, 2048


def prototypes(mesh, spec):
    def compute(features, labels):
        total = jax.ops.segment_sum(features, labels, CLASSES)
        mean = total / (jnp.bincount(labels, length=CLASSES)[:, None] + 1e-6)
        return jax.lax.with_sharding_constraint(mean, NamedSharding(mesh, spec))  # FAULT

    features = jax.ShapeDtypeStruct((ROWS, FEATURES), jnp.float32, sharding=NamedSharding(mesh, P(None, "i")))
    return jax.jit(compute), (features, jax.ShapeDtypeStruct((ROWS,), jnp.int32, sharding=NamedSharding(mesh, P())))


def make_faulty(devices):
    return prototypes(Mesh(np.array(devices), ("i",)), P("i", None))  # FAULT


def make_fixed(devices):
    return prototypes(Mesh(np.array(devices), ("i",)), P(None, "i"))
