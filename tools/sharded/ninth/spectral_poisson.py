# mypy: ignore-errors
"""Fault: reshard. Between the transform along columns and the one along rows the field is made whole on every device before it is cut along the other dimension; one all-to-all would do, and each device would never hold the full field."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

GRID = 2048
FIELDS = 4
STEPS = 3


def pencil_shardings(mesh):
    return {
        "rows": NamedSharding(mesh, P(None, "grid", None)),
        "columns": NamedSharding(mesh, P(None, None, "grid")),
        "whole": NamedSharding(mesh, P()),
    }


def to_columns(field, s):
    field = jax.lax.with_sharding_constraint(field, s["whole"])  # FAULT
    return jax.lax.with_sharding_constraint(field, s["columns"])


def to_rows(field, s):
    return jax.lax.with_sharding_constraint(field, s["rows"])


def wavenumbers():
    k = jnp.arange(1, GRID + 1, dtype=jnp.float32)
    return k[:, None], k[None, :]


def dst_matrix():
    n = jnp.arange(1, GRID + 1, dtype=jnp.float32)
    return jnp.sqrt(2.0 / (GRID + 1)) * jnp.sin(jnp.pi * jnp.outer(n, n) / (GRID + 1))


def solve(rhs, s):
    """Sine transform along x, then along y, divide, and back."""
    transform = dst_matrix()
    spectrum = to_rows(rhs @ transform, s)
    spectrum = to_columns(spectrum, s)
    spectrum = jnp.einsum("ky,fyx->fkx", transform, spectrum)
    kx, ky = wavenumbers()
    spectrum = spectrum / (1.0 + kx**2 + ky**2)
    spectrum = jnp.einsum("ky,fyx->fkx", transform, spectrum)
    spectrum = jax.lax.with_sharding_constraint(spectrum, s["columns"])
    return to_rows(spectrum, s) @ transform


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("grid",))
    s = pencil_shardings(mesh)

    def relax(density, potential):
        def body(potential, _):
            residual = density - 0.1 * potential**3
            return solve(residual, s), None

        potential, _ = jax.lax.scan(body, potential, None, length=STEPS)
        return potential

    field = jax.ShapeDtypeStruct((FIELDS, GRID, GRID), jnp.float32, sharding=s["rows"])
    return jax.jit(relax, out_shardings=s["rows"], donate_argnums=1), (field, field)
