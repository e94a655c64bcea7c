# mypy: ignore-errors
"""Fault: replicated. The stations are (rightly) on every chip, and the covariance made from them is never split, so
every chip computes and holds the whole matrix.

Kriging of ozone measurements: a Matern covariance over all stations, conjugate gradients for the weights (and for
a few probes of the log-determinant), and the mean at the points of a map.
"""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclass(frozen=True)
class Kriging:
    stations: int = 20480
    features: int = 8
    grid: int = 32768
    probes: int = 15
    iterations: int = 60
    noise: float = 0.05


def squared_distances(a, b):
    cross = jnp.dot(a, b.T, precision="highest")
    return jnp.maximum((a * a).sum(1)[:, None] + (b * b).sum(1)[None, :] - 2.0 * cross, 0.0)


def matern(a, b, lengths, variance):
    scaled = jnp.sqrt(5.0 * squared_distances(a / lengths, b / lengths) + 1e-12)
    return variance * (1.0 + scaled + scaled * scaled / 3.0) * jnp.exp(-scaled)


def conjugate_gradients(apply, right, iterations):
    def step(_, carry):
        x, r, p, rr = carry
        ap = apply(p)
        alpha = rr / (jnp.sum(p * ap, axis=0) + 1e-12)
        x = x + alpha * p
        r = r - alpha * ap
        fresh = jnp.sum(r * r, axis=0)
        return x, r, r + (fresh / (rr + 1e-12)) * p, fresh

    start = (jnp.zeros_like(right), right, right, jnp.sum(right * right, axis=0))
    return jax.lax.fori_loop(0, iterations, step, start)[0]


def make_predict(config, mesh):
    by_point = NamedSharding(mesh, P("row"))

    def predict(places, readings, probes, lengths, variance, targets):
        covariance = matern(places, places, lengths, variance)  # FAULT
        covariance = covariance + config.noise * jnp.eye(config.stations)
        right = jnp.concatenate([readings[:, None], probes], axis=1)
        solved = conjugate_gradients(lambda p: covariance @ p, right, config.iterations)
        weights, trace = solved[:, 0], jnp.sum(solved[:, 1:] * probes)

        def at(block):
            return matern(block, places, lengths, variance) @ weights

        blocks = targets.reshape(32, config.grid // 32, config.features)
        blocks = jax.lax.with_sharding_constraint(blocks, NamedSharding(mesh, P(None, "row")))
        means = jax.lax.map(at, blocks).reshape(config.grid)
        return jax.lax.with_sharding_constraint(means, by_point), trace

    return predict


def make_faulty(devices):
    config = Kriging()
    mesh = Mesh(np.asarray(devices).reshape(4), ("row",))
    everywhere = NamedSharding(mesh, P())
    by_point = NamedSharding(mesh, P("row"))

    def array(*shape, sharding=everywhere):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    arguments = (
        array(config.stations, config.features),
        array(config.stations),
        array(config.stations, config.probes),
        array(config.features),
        array(),
        array(config.grid, config.features, sharding=by_point),
    )
    jitted = jax.jit(make_predict(config, mesh), out_shardings=(by_point, everywhere))
    return jitted, arguments
