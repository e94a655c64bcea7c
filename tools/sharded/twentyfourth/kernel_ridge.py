# mypy: ignore-errors
"""Fault: dropped. with_sharding_constraint returns the constrained array, and here its value is thrown away: the
kernel matrix is whole on every device.

Kernel ridge regression of molecular energies, solved by conjugate gradients.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

MOLECULES = 20480
FEATURES = 256
TARGETS = 4
RIDGE = 1e-4
WIDTH = 3.0
ITERATIONS = 50


def squared_distances(a, b):
    cross = a @ b.T
    return jnp.sum(a * a, 1)[:, None] - 2 * cross + jnp.sum(b * b, 1)[None, :]


def kernel_matrix(features, rows):
    kernel = jnp.exp(-squared_distances(features, features) / (2 * WIDTH**2))  # FAULT
    jax.lax.with_sharding_constraint(kernel, rows)  # FAULT
    return kernel


def conjugate_gradients(matvec, b):
    """Solves for all right-hand sides (columns) at once."""

    def body(carry, _):
        x, r, p, rr = carry
        ap = matvec(p)
        alpha = rr / jnp.sum(p * ap, axis=0)
        x = x + alpha * p
        r = r - alpha * ap
        fresh = jnp.sum(r * r, axis=0)
        p = r + fresh / rr * p
        return (x, r, p, fresh), fresh

    start = (jnp.zeros_like(b), b, b, jnp.sum(b * b, axis=0))
    (x, *_), residuals = jax.lax.scan(body, start, length=ITERATIONS)
    return x, residuals


def standardize(features):
    mean = features.mean(axis=0)
    return (features - mean) / (features.std(axis=0) + 1e-6)


def make_fit(mesh):
    rows = NamedSharding(mesh, P("rows", None))

    def fit(features, energies):
        features = standardize(features)
        kernel = kernel_matrix(features, rows)
        baseline = energies.mean(axis=0)
        weights, residuals = conjugate_gradients(lambda v: kernel @ v + RIDGE * v, energies - baseline)
        fitted = kernel @ weights + baseline
        error = jnp.sqrt(jnp.mean((fitted - energies) ** 2, axis=0))
        return {"weights": weights, "baseline": baseline, "residuals": residuals, "rmse": error}

    return fit


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(4), ("rows",))
    small = NamedSharding(mesh, P())
    features = jax.ShapeDtypeStruct((MOLECULES, FEATURES), jnp.float32, sharding=small)
    energies = jax.ShapeDtypeStruct((MOLECULES, TARGETS), jnp.float32, sharding=small)
    return jax.jit(make_fit(mesh), out_shardings=small), (features, energies)
