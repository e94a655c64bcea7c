# mypy: ignore-errors
"""Clean. The cost matrix and the plan are divided by the cells of the early day over the four chips.

Entropic optimal transport between two days of a single-cell experiment: log-domain Sinkhorn iterations over
the squared distances of two embedded cell populations, then the barycentric map and the growth rates.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax.scipy.special import logsumexp

TARGET = "tpu-v5e:2x2"

EARLY, LATE, GENES = 8192, 6144, 50
ROUNDS = 200


class Placement:
    """Lays values out on the mesh by the names of their axes; unknown names mean: not divided."""

    def __init__(self, mesh):
        self.mesh = mesh

    def spec(self, *names):
        return P(*(name if name in self.mesh.axis_names else None for name in names))

    def __call__(self, x, *names):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, self.spec(*names)))


def squared_distances(x, y):
    cross = jnp.einsum("ig,jg->ij", x, y, precision="highest")
    cost = (x * x).sum(-1)[:, None] + (y * y).sum(-1)[None, :] - 2.0 * cross
    return jnp.maximum(cost, 0.0)


def sinkhorn(cost, log_a, log_b, epsilon, unbalanced):
    damping = unbalanced / (unbalanced + epsilon)

    def one_round(potentials, _):
        f, g = potentials
        f = -damping * epsilon * logsumexp((g[None, :] - cost) / epsilon + log_b[None, :], axis=1)
        h = -epsilon * logsumexp((f[:, None] - cost) / epsilon + log_a[:, None], axis=0)
        return (f, h), jnp.max(jnp.abs(h - g))

    start = (jnp.zeros_like(log_a), jnp.zeros_like(log_b))
    (f, g), drift = jax.lax.scan(one_round, start, length=ROUNDS)
    return f, g, drift


def build(place):
    def solve(early, late, growth, epsilon, unbalanced):
        log_a = jnp.log(growth) - jnp.log(growth.sum())
        log_b = jnp.full((LATE,), -jnp.log(float(LATE)))
        cost = place(squared_distances(early, late), "cells", None)
        cost = cost / jnp.mean(cost)
        f, g, drift = sinkhorn(cost, log_a, log_b, epsilon, unbalanced)
        log_plan = (f[:, None] + g[None, :] - cost) / epsilon + log_a[:, None] + log_b[None, :]
        plan = jnp.exp(log_plan)
        mass = plan.sum(axis=1)
        mapped = (plan @ late) / jnp.maximum(mass, 1e-30)[:, None]
        return {
            "plan": plan.astype(jnp.bfloat16),
            "mapped": mapped,
            "growth": mass * EARLY,
            "drift": drift,
            "transport_cost": jnp.vdot(plan, cost),
        }

    return solve


def make_fixed(devices):
    grid = mesh_utils.create_device_mesh((len(devices),), devices=devices)
    mesh = Mesh(grid, ("cells",))
    place = Placement(mesh)
    everywhere = NamedSharding(mesh, P())

    def cloud(count):
        return jax.ShapeDtypeStruct((count, GENES), jnp.float32, sharding=everywhere)

    growth = jax.ShapeDtypeStruct((EARLY,), jnp.float32, sharding=everywhere)
    number = jax.ShapeDtypeStruct((), jnp.float32, sharding=everywhere)
    return jax.jit(build(place)), (cloud(EARLY), cloud(LATE), growth, number, number)
