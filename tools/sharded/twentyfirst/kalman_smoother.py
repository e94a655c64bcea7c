# mypy: ignore-errors
"""Fault: stack. The filter's stacked history is pinned with the spec of a single step: its leading axis is
time, not the series, so no device keeps just its own series' covariances while the scan fills the stack.

Batch of linear-Gaussian state space models (a sensor fleet, one series per bearing): Kalman filter forward,
modified Bryson-Frazier smoother backward. The scalar observations of a step need no matrix inverse.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

SERIES, STEPS, STATE = 768, 384, 16
DT, PROCESS_NOISE, SENSOR_NOISE = 0.1, 1e-3, 0.05


class Belief(NamedTuple):
    mean: Any  # series, state
    cov: Any  # series, state, state


class Record(NamedTuple):
    """What the backward pass needs of one step, before the measurement was taken in."""

    mean: Any
    cov: Any
    innovation: Any
    variance: Any


def oscillators():
    """Transition matrix of STATE / 2 damped oscillators and a sensor that sees their sum."""
    blocks = []
    for i in range(STATE // 2):
        w, damp = 0.7 * (i + 1), np.exp(-0.01 * (i + 1))
        c, s = damp * np.cos(w * DT), damp * np.sin(w * DT)
        blocks.append(np.array([[c, s], [-s, c]]))
    transition = np.zeros((STATE, STATE))
    for i, block in enumerate(blocks):
        transition[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = block
    sensor = np.tile([1.0, 0.0], STATE // 2)
    return jnp.asarray(transition, jnp.float32), jnp.asarray(sensor, jnp.float32)


def make_smoother(mesh):
    transition, sensor = oscillators()
    noise = PROCESS_NOISE * jnp.eye(STATE)

    def pin(tree, spec):
        return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, spec))

    def predict(belief):
        cov = jnp.einsum("ij,sjk,lk->sil", transition, belief.cov, transition) + noise
        return Belief(belief.mean @ transition.T, cov)

    def forward(belief, observed):
        prior = predict(belief)
        ph = prior.cov @ sensor  # series, state
        variance = ph @ sensor + SENSOR_NOISE
        innovation = observed - prior.mean @ sensor
        gain = ph / variance[:, None]
        posterior = Belief(
            prior.mean + gain * innovation[:, None],
            prior.cov - gain[:, :, None] * ph[:, None, :],
        )
        posterior = pin(posterior, P("series"))
        return posterior, Record(prior.mean, prior.cov, innovation, variance)

    def backward(adjoint, record):
        lam, big = adjoint
        gain = (record.cov @ sensor) / record.variance[:, None]
        keep = jnp.eye(STATE) - gain[:, :, None] * sensor  # series, state, state
        lam = jnp.einsum("sji,sj->si", keep, lam) - sensor * (record.innovation / record.variance)[:, None]
        big = jnp.einsum("sji,sjk,skl->sil", keep, big, keep)
        big = big + jnp.outer(sensor, sensor) / record.variance[:, None, None]
        mean = record.mean - jnp.einsum("sij,sj->si", record.cov, lam)
        shrink = jnp.einsum("sij,sjk,ski->si", record.cov, big, record.cov)
        variance = jnp.diagonal(record.cov, axis1=1, axis2=2) - shrink
        lam = lam @ transition
        big = jnp.einsum("ji,sjk,kl->sil", transition, big, transition)
        return pin((lam, big), P("series")), (mean, variance)

    def smooth(start, observations):
        last, history = jax.lax.scan(forward, start, observations)
        history = pin(history, P("series"))  # FAULT
        zero = (jnp.zeros_like(last.mean), jnp.zeros_like(last.cov))
        _, (means, variances) = jax.lax.scan(backward, zero, history, reverse=True)
        fit = -0.5 * jnp.sum(history.innovation**2 / history.variance + jnp.log(history.variance), axis=0)
        return means, variances, fit

    return smooth


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("series",))
    by_series = NamedSharding(mesh, P("series"))
    by_step = NamedSharding(mesh, P(None, "series"))
    start = Belief(
        jax.ShapeDtypeStruct((SERIES, STATE), jnp.float32, sharding=by_series),
        jax.ShapeDtypeStruct((SERIES, STATE, STATE), jnp.float32, sharding=by_series),
    )
    observations = jax.ShapeDtypeStruct((STEPS, SERIES), jnp.float32, sharding=by_step)
    smooth = jax.jit(make_smoother(mesh), out_shardings=(by_step, by_step, by_series))
    return smooth, (start, observations)
