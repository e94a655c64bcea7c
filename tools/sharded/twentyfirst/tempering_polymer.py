# mypy: ignore-errors
"""Clean. The chains are split by temperature rung; the ladder of temperatures and the rungs' energies are
whole on every device, they are a few hundred bytes and the swaps need all of them.

Replica exchange Monte Carlo of bead-spring polymers. A swap exchanges the temperatures of two rungs, never
their coordinates, hence the permutation `rung` that looks like an index into another device's data.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

RUNGS, CHAINS, BEADS = 32, 16, 512
MOVES, ROUNDS = 8, 10
BOND, EPSILON, SIGMA, STRIDE = 30.0, 1.0, 1.0, 0.12


class Walkers(NamedTuple):
    beads: Any  # rung, chain, bead, xyz
    energy: Any  # rung, chain
    rung: Any  # which temperature each slot simulates at present


def chain_energy(beads):
    """Harmonic bonds and a cut Lennard-Jones repulsion among all pairs of one chain."""
    bonds = jnp.sum((jnp.linalg.norm(beads[1:] - beads[:-1] + 1e-9, axis=-1) - 1.0) ** 2)
    square = jnp.sum(beads * beads, -1)
    r2 = square[:, None] + square[None, :] - 2.0 * beads @ beads.T
    r2 = jnp.maximum(r2, 0.5) + 1e6 * jnp.eye(beads.shape[0])
    s6 = (SIGMA * SIGMA / r2) ** 3
    pairs = jnp.where(r2 < 2.0 ** (1 / 3) * SIGMA**2, 4.0 * (s6 * s6 - s6) + 1.0, 0.0)
    return BOND * bonds + 0.5 * EPSILON * jnp.sum(pairs)


energies = jax.vmap(jax.vmap(chain_energy))


def crankshaft(key, beads):
    """Shift a random tail of every chain by a random vector."""
    where, how = jax.random.split(key)
    start = jax.random.randint(where, beads.shape[:2], 1, BEADS)
    tail = jnp.arange(BEADS) >= start[..., None]
    return beads + STRIDE * tail[..., None] * jax.random.normal(how, (*beads.shape[:2], 1, 3))


def build(mesh):
    by_rung, whole = NamedSharding(mesh, P("rungs")), NamedSharding(mesh, P())
    pin = jax.lax.with_sharding_constraint

    def metropolis(carry, key):
        walkers, beta = carry
        propose, accept = jax.random.split(key)
        beads = pin(crankshaft(propose, walkers.beads), by_rung)
        energy = energies(beads)
        better = jnp.exp(-beta[:, None] * (energy - walkers.energy))
        take = jax.random.uniform(accept, energy.shape) < better
        beads = pin(jnp.where(take[..., None, None], beads, walkers.beads), by_rung)
        return (Walkers(beads, jnp.where(take, energy, walkers.energy), walkers.rung), beta), take.mean()

    def swap(key, walkers, ladder, parity):
        """Neighbouring temperatures change places with the usual probability, even and odd pairs in turn."""
        energy = pin(walkers.energy.sum(1), whole)
        slot = jnp.argsort(walkers.rung)  # the slot that simulates each temperature
        t = jnp.arange(RUNGS)
        partner = jnp.clip(jnp.where((t + parity) % 2 == 0, t + 1, t - 1), 0, RUNGS - 1)
        gain = (ladder[t] - ladder[partner]) * (energy[slot[t]] - energy[slot[partner]])
        draw = jax.random.uniform(key, (RUNGS,))
        draw = draw[jnp.minimum(t, partner)]  # the same number for both of a pair
        fresh = jnp.where(jnp.log(draw) < gain, partner, t)
        return walkers._replace(rung=pin(fresh[walkers.rung], whole))

    def run(key, walkers, ladder):
        def one_round(walkers, inputs):
            key, parity = inputs
            move, exchange = jax.random.split(key)
            carry = walkers, ladder[walkers.rung]
            (walkers, _), accepted = jax.lax.scan(metropolis, carry, jax.random.split(move, MOVES))
            walkers = swap(exchange, walkers, ladder, parity)
            return walkers, (walkers.energy.mean(1)[jnp.argsort(walkers.rung)], accepted.mean())

        inputs = jax.random.split(key, ROUNDS), jnp.arange(ROUNDS) % 2
        return jax.lax.scan(one_round, walkers, inputs)

    return run, Walkers(by_rung, by_rung, whole), whole


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("rungs",))
    run, places, whole = build(mesh)
    walkers = Walkers(
        jax.ShapeDtypeStruct((RUNGS, CHAINS, BEADS, 3), jnp.float32, sharding=places.beads),
        jax.ShapeDtypeStruct((RUNGS, CHAINS), jnp.float32, sharding=places.energy),
        jax.ShapeDtypeStruct((RUNGS,), jnp.int32, sharding=places.rung),
    )
    ladder = jax.ShapeDtypeStruct((RUNGS,), jnp.float32, sharding=whole)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32, sharding=whole)
    return jax.jit(run, donate_argnums=1, out_shardings=(places, whole)), (key, walkers, ladder)
