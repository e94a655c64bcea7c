# mypy: ignore-errors
"""Fault: padding. The five ensemble members are split over an axis of four chips: two to a chip, so room for eight is held,
while the rows of the grid split evenly over all chips.

Ensemble forecast of the shallow-water equations with a localized analysis of observations between the windows.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

MEMBERS = 5  # the control and four perturbed
ROWS, COLUMNS = 2048, 4096
WINDOWS = 4
STEPS = 12
GRAVITY, DEPTH, DT, DX = 9.81, 100.0, 5.0, 1000.0

LAYOUT = {
    "field": P(("member", "row"), None),
    "ensemble": P("member", "row", None),  # FAULT
}


def layouts(mesh):
    return {name: NamedSharding(mesh, spec) for name, spec in LAYOUT.items()}


def east(x):
    return (jnp.roll(x, -1, -1) - jnp.roll(x, 1, -1)) / (2 * DX)


def north(x):
    return (jnp.roll(x, -1, -2) - jnp.roll(x, 1, -2)) / (2 * DX)


def step(state):
    """One forward-backward step of height and the two velocities."""
    h, u, v = state
    h = h - DT * (DEPTH + h) * (east(u) + north(v)) - DT * (u * east(h) + v * north(h))
    u = u - DT * (GRAVITY * east(h) + u * east(u) + v * north(u))
    v = v - DT * (GRAVITY * north(h) + u * east(v) + v * north(v))
    return h, u, v


def perturb(mean, key, place):
    """Members around the mean state."""
    shape = (MEMBERS, ROWS, COLUMNS)
    noise = [jax.random.normal(k, shape) for k in jax.random.split(key, 3)]
    return tuple(place(m[None] + s * n) for m, n, s in zip(mean, noise, (1.0, 0.1, 0.1)))


def analyse(ensemble, observed, error):
    """Pulls the members towards the observed height, point by point, with the ensemble's own covariances."""
    h = ensemble[0]
    h_anomaly = h - h.mean(axis=0)
    variance = jnp.mean(h_anomaly**2, axis=0)
    innovation = (observed[None] - h) / (variance + error**2)[None]

    def pull(x):
        covariance = jnp.mean((x - x.mean(axis=0)) * h_anomaly, axis=0)
        return x + covariance[None] * innovation

    return tuple(pull(x) for x in ensemble)


def forecast(mean, observations, key, *, where):
    place = lambda x: jax.lax.with_sharding_constraint(x, where["ensemble"])  # FAULT
    ensemble = perturb(mean, key, place)

    def window(ensemble, observed):
        ensemble = jax.lax.fori_loop(0, STEPS, lambda _, e: tuple(map(place, step(e))), ensemble)
        ensemble = tuple(map(place, analyse(ensemble, observed, error=0.5)))
        misfit = jnp.mean((ensemble[0].mean(axis=0) - observed) ** 2)
        return ensemble, misfit

    ensemble, misfits = jax.lax.scan(window, ensemble, observations)
    field = lambda x: jax.lax.with_sharding_constraint(x, where["field"])
    best = tuple(field(x.mean(axis=0)) for x in ensemble)
    spread = tuple(field(x.std(axis=0)) for x in ensemble)
    return best, spread, misfits


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(4, 4), ("member", "row"))
    where = layouts(mesh)
    field = jax.ShapeDtypeStruct((ROWS, COLUMNS), jnp.float32, sharding=where["field"])
    observations = jax.ShapeDtypeStruct(
        (WINDOWS, ROWS, COLUMNS), jnp.float32, sharding=NamedSharding(mesh, P(None, *LAYOUT["field"])))
    key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype, sharding=NamedSharding(mesh, P()))
    return jax.jit(functools.partial(forecast, where=where)), ((field,) * 3, observations, key)
