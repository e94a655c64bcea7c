# mypy: ignore-errors
"""Clean. Hamiltonian Monte Carlo of a lattice field; all it collects is split by chain."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"


class Theory(NamedTuple):
    """Scalar phi^4 theory on a square lattice."""

    side: int = 128
    mass2: float = -0.72
    coupling: float = 0.5

    def action(self, phi):
        """One chain's action; nearest neighbours wrap around."""
        hop = sum(jnp.sum(phi * jnp.roll(phi, 1, axis)) for axis in (0, 1))
        phi2 = phi * phi
        potential = jnp.sum((2.0 + 0.5 * self.mass2) * phi2 + self.coupling * phi2 * phi2)
        return potential - hop


class Sampler(NamedTuple):
    chains: int = 64
    trajectories: int = 48
    leaps: int = 12
    length: float = 1.0


class Chains(NamedTuple):
    phi: jax.Array
    action: jax.Array
    accepted: jax.Array


def leapfrog(force, phi, momentum, sampler):
    dt = sampler.length / sampler.leaps

    def leap(_, carry):
        phi, momentum = carry
        phi += dt * momentum
        return phi, momentum + dt * force(phi)

    momentum += 0.5 * dt * force(phi)
    phi, momentum = lax.fori_loop(0, sampler.leaps - 1, leap, (phi, momentum))
    phi += dt * momentum
    return phi, momentum + 0.5 * dt * force(phi)


def kinetic(momentum):
    return 0.5 * jnp.sum(momentum * momentum, axis=(1, 2))


def trajectory(theory, sampler, chains, key):
    """One Metropolis-corrected trajectory of all chains."""
    action = jax.vmap(theory.action)
    force = jax.vmap(jax.grad(lambda phi: -theory.action(phi)))
    key_p, key_u = jax.random.split(key)
    momentum = jax.random.normal(key_p, chains.phi.shape)
    phi, moved = leapfrog(force, chains.phi, momentum, sampler)
    new_action = action(phi)
    cost = new_action - chains.action + kinetic(moved) - kinetic(momentum)
    accept = jnp.log(jax.random.uniform(key_u, cost.shape)) < -cost
    return Chains(
        phi=jnp.where(accept[:, None, None], phi, chains.phi),
        action=jnp.where(accept, new_action, chains.action),
        accepted=chains.accepted + accept,
    )


def run_chains(theory, sampler, chains, seed):
    def body(chains, number):
        key = jax.random.fold_in(jax.random.key(seed), number)
        chains = trajectory(theory, sampler, chains, key)
        measured = {
            "field": chains.phi,
            "magnetisation": jnp.mean(jnp.abs(jnp.mean(chains.phi, axis=(1, 2)))),
            "action": jnp.mean(chains.action) / theory.side**2,
        }
        return chains, measured

    return lax.scan(body, chains, jnp.arange(sampler.trajectories))


def make_fixed(devices):
    theory, sampler = Theory(), Sampler()
    mesh = Mesh(np.array(devices), ("chain",))
    per_chain, everywhere = NamedSharding(mesh, P("chain")), NamedSharding(mesh, P())

    def array(*shape, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=per_chain)

    n = sampler.chains
    assert n % math.prod(mesh.devices.shape) == 0
    chains = Chains(array(n, theory.side, theory.side), array(n), array(n, dtype=jnp.int32))
    measured = {
        "field": NamedSharding(mesh, P(None, "chain")),
        "magnetisation": everywhere,
        "action": everywhere,
    }
    seed = jax.ShapeDtypeStruct((), jnp.int32, sharding=everywhere)
    jitted = jax.jit(
        lambda chains, seed: run_chains(theory, sampler, chains, seed),
        donate_argnums=0,
        out_shardings=(per_chain, measured),
    )
    return jitted, (chains, seed)
