# mypy: ignore-errors
"""Fault: stack. The gradient of a heat equation by its conductivity keeps every time step, split over the rows of the mesh of chips only and not over its columns."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"
N, STEPS, DT = 1024, 96, 0.1


def face(kappa, axis):
    return 0.5 * (kappa + jnp.roll(kappa, -1, axis))


def divergence(u, kappa):
    total = jnp.zeros_like(u)
    for axis in (0, 1):
        flux = face(kappa, axis) * (jnp.roll(u, -1, axis) - u)
        total = total + flux - jnp.roll(flux, 1, axis)
    return total


def simulate(log_kappa, u0, place):
    kappa = place(jnp.exp(log_kappa))  # FAULT

    def step(u, _):
        u = u + DT * divergence(u, kappa)
        u = place(u - 0.01 * DT * u**3)  # FAULT
        return u, None

    u, _ = jax.lax.scan(step, place(u0), None, length=STEPS)  # FAULT
    return u


def rows_only(u):
    return jax.lax.with_sharding_constraint(u, P("x", None))  # FAULT


def tiles(u):
    return jax.lax.with_sharding_constraint(u, P("x", "y"))


def build(devices, layout):
    mesh = Mesh(np.array(devices).reshape(2, 2), ("x", "y"))
    field = jax.ShapeDtypeStruct((N, N), jnp.float32, sharding=NamedSharding(mesh, P("x", "y")))

    @jax.jit
    def invert(log_kappa, u0, measured):
        misfit = lambda k: jnp.mean((simulate(k, u0, layout) - measured) ** 2)
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            value, slope = jax.value_and_grad(misfit)(log_kappa)
            return jax.lax.with_sharding_constraint(log_kappa - 5.0 * slope, P("x", "y")), value

    return invert, (field, field, field)


def make_faulty(devices):
    return build(devices, rows_only)  # FAULT


def make_fixed(devices):
    return build(devices, tiles)
