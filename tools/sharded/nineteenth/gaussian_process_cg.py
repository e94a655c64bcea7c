# mypy: ignore-errors
"""Clean. Gaussian process regression without the kernel matrix in memory: each device forms its rows of the
kernel block by block; the observations (a few MiB) are whole because every row needs all of them.

The conjugate gradients' vectors are split as the rows are, only the direction is gathered for the product.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

POINTS, FEATURES, PROBES = 65_536, 6, 32
BLOCK, ITERATIONS = 256, 60


class Hyper(NamedTuple):
    log_length: jax.Array
    log_signal: jax.Array
    log_noise: jax.Array


class CG(NamedTuple):
    x: jax.Array
    r: jax.Array
    p: jax.Array
    rr: jax.Array


def matern32(hyper, a, b):
    a, b = a * jnp.exp(-hyper.log_length), b * jnp.exp(-hyper.log_length)
    square = (a * a).sum(-1)[:, None] + (b * b).sum(-1) - 2 * a @ b.T
    distance = jnp.sqrt(3.0 * jnp.maximum(square, 1e-12))
    return jnp.exp(2 * hyper.log_signal) * (1 + distance) * jnp.exp(-distance)


def kernel_product(mesh):
    """(K + noise) v, the rows of K formed a block at a time."""

    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(P(), P("rows"), P(), P("rows")),
        out_specs=P("rows"),
        check_vma=False,
    )
    def product(hyper, mine, points, v):
        everything = jax.lax.all_gather(v, "rows", tiled=True)

        def block(rows):
            return matern32(hyper, rows, points) @ everything

        y = jax.lax.map(block, mine.reshape(-1, BLOCK, FEATURES)).reshape(v.shape)
        return y + jnp.exp(2 * hyper.log_noise) * v

    return product


def conjugate_gradients(apply, b, iterations):
    """All right-hand sides at once; columns which have converged are left alone."""

    def one(_, s):
        ap = apply(s.p)
        alive = s.rr > 1e-10
        alpha = jnp.where(alive, s.rr / jnp.maximum((s.p * ap).sum(0), 1e-30), 0.0)
        x, r = s.x + alpha * s.p, s.r - alpha * ap
        rr = (r * r).sum(0)
        beta = jnp.where(alive, rr / jnp.maximum(s.rr, 1e-30), 0.0)
        return CG(x, r, r + beta * s.p, rr)

    start = CG(jnp.zeros_like(b), b, b, (b * b).sum(0))
    return jax.lax.fori_loop(0, iterations, one, start)


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(8), ("rows",))
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("rows"))
    product = kernel_product(mesh)

    def fit(hyper, points, targets, key):
        """The weights for the mean, and a stochastic estimate of the trace of the inverse."""
        mine = jax.lax.with_sharding_constraint(points, rows)
        probes = jax.random.rademacher(key, (POINTS, PROBES - 1), jnp.float32)
        right = jax.lax.with_sharding_constraint(jnp.concatenate([targets[:, None], probes], 1), rows)
        state = conjugate_gradients(lambda v: product(hyper, mine, points, v), right, ITERATIONS)
        trace = (state.x[:, 1:] * right[:, 1:]).sum() / (PROBES - 1)
        data_fit = -0.5 * jnp.vdot(targets, state.x[:, 0])
        return state.x[:, 0], {"data_fit": data_fit, "trace": trace, "residual": jnp.sqrt(state.rr)}

    number = jax.ShapeDtypeStruct((), jnp.float32, sharding=whole)
    points = jax.ShapeDtypeStruct((POINTS, FEATURES), jnp.float32, sharding=whole)
    targets = jax.ShapeDtypeStruct((POINTS,), jnp.float32, sharding=rows)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=whole)
    jitted = jax.jit(fit, out_shardings=(rows, whole))
    return jitted, (Hyper(number, number, number), points, targets, key)
