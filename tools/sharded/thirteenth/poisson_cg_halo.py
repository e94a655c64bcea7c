# mypy: ignore-errors
"""Clean. Conjugate gradients for a variable-coefficient Poisson problem: strips with exchanged halo rows, and a two-level preconditioner whose small coarse grid is whole on each device."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

NY, NX = 4096, 3072
COARSE = 64  # fine cells per coarse cell, along both axes
ITERATIONS = 200
SWEEPS = 50


class CG(NamedTuple):
    x: jax.Array
    r: jax.Array
    p: jax.Array
    rz: jax.Array


def with_halo(u, axis="y"):
    """A row from either neighbour; zeros beyond the ends (Dirichlet)."""
    n = lax.axis_size(axis)
    above = lax.ppermute(u[-1:], axis, [(i, i + 1) for i in range(n - 1)])
    below = lax.ppermute(u[:1], axis, [(i + 1, i) for i in range(n - 1)])
    return jnp.concatenate([above, u, below], 0)


def operator(kappa, u):
    """-div(kappa grad u), kappa at the cells, unit spacing. kappa comes with its halo."""
    v = jnp.pad(with_halo(u), ((0, 0), (1, 1)))
    k = jnp.pad(kappa, ((0, 0), (1, 1)), mode="edge")
    mid, kc = v[1:-1, 1:-1], k[1:-1, 1:-1]
    flux = lambda nb, kn: 0.5 * (kc + kn) * (mid - nb)
    return (
        flux(v[:-2, 1:-1], k[:-2, 1:-1])
        + flux(v[2:, 1:-1], k[2:, 1:-1])
        + flux(v[1:-1, :-2], k[1:-1, :-2])
        + flux(v[1:-1, 2:], k[1:-1, 2:])
    )


def restrict(r):
    """Means over COARSE x COARSE cells, then the strips of all devices together."""
    h, w = r.shape
    local = r.reshape(h // COARSE, COARSE, w // COARSE, COARSE).mean((1, 3))
    return lax.all_gather(local, "y", axis=0, tiled=True)


def prolong(c, like):
    rows = like.shape[0] // COARSE
    mine = lax.dynamic_slice_in_dim(c, lax.axis_index("y") * rows, rows)
    return jnp.repeat(jnp.repeat(mine, COARSE, 0), COARSE, 1)


def coarse_solve(rhs):
    """Damped Jacobi with a constant coefficient: cheap enough for every device to do all of it."""

    def sweep(_, e):
        p = jnp.pad(e, 1)
        around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        return e + 0.2 * (rhs * COARSE - 4 * e + around)

    return lax.fori_loop(0, SWEEPS, sweep, 0.2 * COARSE * rhs)


def precondition(kappa, r):
    return 0.25 * r / kappa[1:-1] + prolong(coarse_solve(restrict(r)), r)


def dot(a, b):
    return lax.psum(jnp.vdot(a, b), "y")


def solve(kappa, f, guess):
    kappa = with_halo(kappa)
    kappa = jnp.where(kappa > 0, kappa, 1.0)
    r = f - operator(kappa, guess)
    z = precondition(kappa, r)

    def iterate(_, s):
        ap = operator(kappa, s.p)
        alpha = s.rz / dot(s.p, ap)
        x, r = s.x + alpha * s.p, s.r - alpha * ap
        z = precondition(kappa, r)
        rz = dot(r, z)
        return CG(x, r, z + (rz / s.rz) * s.p, rz)

    end = lax.fori_loop(0, ITERATIONS, iterate, CG(guess, r, z, dot(r, z)))
    return end.x, jnp.sqrt(dot(end.r, end.r))


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("y",))
    strips = P("y", None)
    run = jax.shard_map(solve, mesh=mesh, in_specs=(strips,) * 3, out_specs=(strips, P()))
    field = jax.ShapeDtypeStruct((NY, NX), jnp.float32, sharding=NamedSharding(mesh, strips))
    return jax.jit(run, donate_argnums=2), (field, field, field)
