# mypy: ignore-errors
"""Fault: stack. Each sweep's configuration is flattened before the scan stacks it; a flat site index cannot carry
the split of the two middle lattice axes, so the stack of all configurations lies whole on every chip.

Hybrid Monte Carlo for a scalar phi^4 field on a four-dimensional lattice: leapfrog trajectories, accept/reject,
and from the kept configurations the autocorrelation in Monte Carlo time.
"""
import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclass(frozen=True)
class Lattice:
    extent: tuple = (32, 32, 32, 128)
    mass_squared: float = -0.4
    coupling: float = 0.6
    sweeps: int = 64
    leapfrog_steps: int = 10
    step_size: float = 0.08

    @property
    def sites(self):
        return int(np.prod(self.extent))


def neighbours(phi):
    return sum(jnp.roll(phi, shift, axis) for axis in range(phi.ndim) for shift in (1, -1))


def action(lat, phi):
    hopping = sum(phi * jnp.roll(phi, -1, axis) for axis in range(phi.ndim))
    quadratic = (phi.ndim + 0.5 * lat.mass_squared) * phi**2
    return jnp.sum(quadratic + lat.coupling * phi**4 - hopping)


def force(lat, phi):
    return neighbours(phi) - (2 * phi.ndim + lat.mass_squared) * phi - 4 * lat.coupling * phi**3


def leapfrog(lat, phi, momentum):
    def one(_, state):
        phi, momentum = state
        phi = phi + lat.step_size * momentum
        return phi, momentum + lat.step_size * force(lat, phi)

    momentum = momentum + 0.5 * lat.step_size * force(lat, phi)
    phi, momentum = lax.fori_loop(0, lat.leapfrog_steps, one, (phi, momentum))
    return phi, momentum - 0.5 * lat.step_size * force(lat, phi)


def sweep(lat, sharding, phi, key):
    draw, decide = jax.random.split(key)
    momentum = jax.random.normal(draw, lat.extent, jnp.float32)
    momentum = lax.with_sharding_constraint(momentum, sharding)
    before = action(lat, phi) + 0.5 * jnp.sum(momentum**2)
    proposal, momentum = leapfrog(lat, phi, momentum)
    after = action(lat, proposal) + 0.5 * jnp.sum(momentum**2)
    accept = jnp.log(jax.random.uniform(decide)) < before - after
    phi = lax.with_sharding_constraint(jnp.where(accept, proposal, phi), sharding)
    return phi, (phi.ravel(), accept)  # FAULT


def autocorrelation(lat, samples):
    fluctuation = samples - jnp.mean(samples, axis=0)
    covariance = jnp.einsum("sn,tn->st", fluctuation, fluctuation) / lat.sites
    lags = jnp.arange(lat.sweeps)[None, :] - jnp.arange(lat.sweeps)[:, None]
    return jnp.stack([jnp.sum(jnp.where(lags == lag, covariance, 0.0)) / (lat.sweeps - lag)
                      for lag in range(lat.sweeps // 3)])


def make_faulty(devices):
    lat = Lattice()
    mesh = Mesh(np.asarray(devices).reshape(2, 2), ("x", "y"))
    field = NamedSharding(mesh, P(None, "x", "y", None))
    whole = NamedSharding(mesh, P())

    def chain(phi, key):
        keys = jax.random.split(key, lat.sweeps)
        phi, (samples, accepted) = lax.scan(functools.partial(sweep, lat, field), phi, keys)
        return phi, autocorrelation(lat, samples), jnp.mean(accepted)

    arguments = (
        jax.ShapeDtypeStruct(lat.extent, jnp.float32, sharding=field),
        jax.ShapeDtypeStruct((), jax.random.key(0).dtype, sharding=whole),
    )
    return jax.jit(chain, out_shardings=(field, whole, whole), donate_argnums=0), arguments
