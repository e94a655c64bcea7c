# mypy: ignore-errors
"""Fault: replicated. The Gram matrix of the kernel ridge regression is split by rows only and whole along "model", though the cross kernel next to it uses both axes; each chip holds four times its share of the largest array."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

POINTS, FEATURES, OUTPUTS, ITERATIONS = 16384, 256, 8, 20
BANDWIDTH, RIDGE = 8.0, 1e-3


def squared_distances(a, b):
    return (
        jnp.sum(a * a, axis=1)[:, None]
        - 2.0 * a @ b.T
        + jnp.sum(b * b, axis=1)[None, :]
    )


def conjugate_gradient(matvec, rhs):
    def body(_, carry):
        x, r, p, rr = carry
        ap = matvec(p)
        alpha = rr / jnp.sum(p * ap, axis=0)
        x = x + alpha * p
        r = r - alpha * ap
        rr_next = jnp.sum(r * r, axis=0)
        p = r + (rr_next / rr) * p
        return x, r, p, rr_next

    start = (jnp.zeros_like(rhs), rhs, rhs, jnp.sum(rhs * rhs, axis=0))
    return jax.lax.fori_loop(0, ITERATIONS, body, start)[0]


def make_fixed(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("data", "model"))

    def constrain(x, *axes):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*axes)))

    def fit(points, targets, queries):
        gram = jnp.exp(-squared_distances(points, points) / (2 * BANDWIDTH**2))
        gram = constrain(gram, "data", "model")

        def matvec(v):
            return constrain(gram @ v, "data", None) + RIDGE * v

        dual = conjugate_gradient(matvec, targets)
        cross = jnp.exp(-squared_distances(queries, points) / (2 * BANDWIDTH**2))
        cross = constrain(cross, "data", "model")
        return dual, cross @ dual

    def struct(shape, *axes):
        return jax.ShapeDtypeStruct(
            shape, jnp.float32, sharding=NamedSharding(mesh, P(*axes))
        )

    points = struct((POINTS, FEATURES), "data")
    targets = struct((POINTS, OUTPUTS), "data")
    queries = struct((POINTS // 4, FEATURES), "data")
    rows = NamedSharding(mesh, P("data"))
    return jax.jit(fit, out_shardings=(rows, rows)), (points, targets, queries)
