# mypy: ignore-errors
"""Fault: dropped. The layout table speaks of "target" but the arrays are placed under the name "targets", so the
collocation points never get their row split and the dense influence matrix is built whole on every device.

A boundary-element solver: screened potential around a body of flat panels, dense collocation matrix, conjugate
gradients on the symmetrised system for several incident fields at once, then the field at some probes.
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

PANELS = 12_288
INCIDENT = 16
PROBES = 64
ITERATIONS = 60
SCREENING = 2.5

LAYOUT = {
    "target": P(("node", "core"), None),  # FAULT
    "sources": P(None, None),
    "areas": P(None),
}


class Body(NamedTuple):
    centers: jax.Array
    areas: jax.Array


class CGState(NamedTuple):
    x: jax.Array
    r: jax.Array
    p: jax.Array
    rr: jax.Array


def place(mesh, **arrays):
    """Puts every array where LAYOUT wants it; arrays it does not mention are left to the compiler."""
    return {
        name: lax.with_sharding_constraint(x, NamedSharding(mesh, LAYOUT[name])) if name in LAYOUT else x
        for name, x in arrays.items()
    }


def distances(a, b):
    squared = sum((a[:, None, k] - b[None, :, k]) ** 2 for k in range(3))
    return jnp.sqrt(squared + 1e-12)


def green(r, areas):
    return jnp.exp(-SCREENING * r) / (4.0 * jnp.pi * r + 1e-6) * areas


def influence_matrix(mesh, body):
    points = place(mesh, targets=body.centers, sources=body.centers, areas=body.areas)  # FAULT
    r = distances(points["targets"], points["sources"])
    weight = jnp.sqrt(points["areas"])
    off_diagonal = green(r, weight[None, :]) * jnp.sqrt(body.areas)[:, None]
    own = 0.5 * jnp.sqrt(body.areas / jnp.pi)
    same = jnp.arange(PANELS)[:, None] == jnp.arange(PANELS)[None, :]
    return jnp.where(same, own[:, None], off_diagonal)


def conjugate_gradients(matrix, rhs):
    def step(_, s):
        ap = matrix @ s.p
        alpha = s.rr / jnp.sum(s.p * ap, axis=0)
        x = s.x + alpha * s.p
        r = s.r - alpha * ap
        rr = jnp.sum(r * r, axis=0)
        return CGState(x, r, r + (rr / s.rr) * s.p, rr)

    start = CGState(jnp.zeros_like(rhs), rhs, rhs, jnp.sum(rhs * rhs, axis=0))
    return lax.fori_loop(0, ITERATIONS, step, start)


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(2, 4), ("node", "core"))
    whole = NamedSharding(mesh, P())

    def solve(body, incident, probes):
        matrix = influence_matrix(mesh, body)
        rhs = incident * jnp.sqrt(body.areas)[:, None]
        final = conjugate_gradients(matrix, rhs)
        charge = final.x / jnp.sqrt(body.areas)[:, None]
        field = green(distances(probes, body.centers), body.areas[None, :]) @ charge
        return field, jnp.sqrt(final.rr)

    def small(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=whole)

    body = Body(centers=small(PANELS, 3), areas=small(PANELS))
    arguments = (body, small(PANELS, INCIDENT), small(PROBES, 3))
    return jax.jit(solve, out_shardings=(whole, whole)), arguments
