# mypy: ignore-errors
"""Fixed."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"
N, AXIS, ITERATIONS = 8192, "chips", 6


def turn(u):
    """Transposes the field: chip i holds the rows i of the transposed field afterwards."""
    return lax.all_to_all(u, AXIS, split_axis=1, concat_axis=0, tiled=True).T


def tridiagonal(low, mid, up, rhs):
    """Thomas algorithm along the leading axis; every column is a system of its own."""
    def down(carry, row):
        c, d = carry
        r = row
        denominator = mid - low * c
        c, d = up / denominator, (r - low * d) / denominator
        return (c, d), (c, d)

    zero = lax.pcast(jnp.zeros(rhs.shape[1:]), AXIS, to="varying")
    _, (c, d) = lax.scan(down, (zero, zero), rhs)

    def back(x, row):
        x = row[1] - row[0] * x
        return x, x

    return lax.scan(back, zero, (c, d), reverse=True)[1]


def laplacian_x(u):
    return jnp.pad(u, ((0, 0), (1, 1)))[:, 2:] + jnp.pad(u, ((0, 0), (1, 1)))[:, :-2] - 2 * u


def peaceman_rachford(u, f, r):
    """One alternating-direction sweep: implicit along x (rows at hand), then implicit along y (columns at hand)."""
    u = tridiagonal(-r, 1 + 2 * r, -r, (u + r * f).T).T
    u = tridiagonal(-r, 1 + 2 * r, -r, turn(u + r * laplacian_x(u)).T).T
    return turn(u)


def make_fixed(devices):
    mesh = Mesh(np.array(devices), (AXIS,))
    rows = P(AXIS, None)

    @functools.partial(jax.jit, donate_argnums=0)
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(rows, rows, P()), out_specs=(rows, P()))
    def solve(u, f, steps):
        def sweep(u, r):
            new = peaceman_rachford(u, f, r)
            return new, jnp.sqrt(lax.psum(jnp.sum((new - u) ** 2), AXIS))

        return lax.scan(sweep, u, steps)

    field = jax.ShapeDtypeStruct((N, N), jnp.float32, sharding=NamedSharding(mesh, rows))
    return solve, (field, field, jax.ShapeDtypeStruct((ITERATIONS,), jnp.float32, sharding=NamedSharding(mesh, P())))
