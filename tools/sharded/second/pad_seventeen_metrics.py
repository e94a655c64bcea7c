# mypy: ignore-errors
"""Fault: padding. Neighbourhood components with seventeen learned metrics on sixteen chips: the pairwise distances are split over the metrics, two to a chip, nearly half of them padding."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
METRICS, POINTS, FEATURES, RANK = 17, 8192, 64, 32


def loss(maps, points, labels, split):
    z = jnp.einsum("nf,kfr->knr", points, maps)
    norm = jnp.sum(z * z, -1)
    distance = norm[:, :, None] + norm[:, None] - 2 * jnp.einsum("knr,kmr->knm", z, z)
    distance = split(distance)  # FAULT
    logits = jnp.where(jnp.eye(POINTS, dtype=bool), -1e9, -distance)
    same = labels[:, None] == labels[None]
    chance = jnp.sum(jnp.where(same, jax.nn.softmax(logits), 0), -1)
    return -jnp.mean(jnp.log(chance + 1e-6))


def build(devices, spec):
    mesh = Mesh(np.array(devices), ("chip",))
    split = lambda d: jax.lax.with_sharding_constraint(d, NamedSharding(mesh, spec))  # FAULT

    def step(maps, points, labels):
        return maps - 0.1 * jax.grad(loss)(maps, points, labels, split)

    arr = lambda dtype, *shape: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P()))
    return jax.jit(step), (arr(jnp.float32, METRICS, FEATURES, RANK), arr(jnp.float32, POINTS, FEATURES), arr(jnp.int32, POINTS))


def make_faulty(devices):
    return build(devices, P("chip", None, None))  # FAULT


def make_fixed(devices):
    return build(devices, P(None, "chip", None))
