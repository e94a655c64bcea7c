# mypy: ignore-errors
"""Fault: dropped. A spectral clustering step on 16 chips: the affinity matrix is given a constraint, but the constrained value is thrown away, and every chip makes the whole matrix."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import with_sharding_constraint
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
N, DIM, VECTORS = 8192, 64, 32


def affinity(points):
    sq = (points * points).sum(-1)
    return jnp.exp(-0.5 * (sq[:, None] + sq[None] - 2 * points @ points.T))


def power_iteration(a, v):
    d = jax.lax.rsqrt(a.sum(1))

    def body(_, v):
        v = d[:, None] * (a @ (d[:, None] * v))
        q, _ = jnp.linalg.qr(v)
        return q

    return jax.lax.fori_loop(0, 20, body, v)


def arguments(mesh):
    whole = NamedSharding(mesh, P())
    return jax.ShapeDtypeStruct((N, DIM), jnp.float32, sharding=whole), jax.ShapeDtypeStruct((N, VECTORS), jnp.float32, sharding=whole)


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("rows",))

    def embed(points, start):
        a = affinity(points)
        with_sharding_constraint(a, NamedSharding(mesh, P("rows")))  # FAULT
        return power_iteration(a, start)

    return jax.jit(embed), arguments(mesh)


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("rows",))

    def embed(points, start):
        a = affinity(points)
        a = with_sharding_constraint(a, NamedSharding(mesh, P("rows")))
        return power_iteration(a, start)

    return jax.jit(embed), arguments(mesh)
