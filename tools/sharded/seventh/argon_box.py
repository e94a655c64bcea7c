# mypy: ignore-errors
"""Clean. Molecular dynamics with positions replicated on every device (small) and the large neighbour lists and forces split by atom."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

ATOMS, NEIGHBOURS, BOX, DT, CUTOFF = 131072, 96, 60.0, 2e-3, 2.5


class System(NamedTuple):
    position: jax.Array
    velocity: jax.Array
    neighbours: jax.Array


def minimum_image(d):
    return d - BOX * jnp.round(d / BOX)


def pair_terms(r2):
    inv2 = jnp.where(r2 < CUTOFF**2, 1.0 / jnp.maximum(r2, 0.3), 0.0)
    inv6 = inv2 * inv2 * inv2
    force_over_r = 24.0 * (2.0 * inv6 * inv6 - inv6) * inv2
    energy = 4.0 * (inv6 * inv6 - inv6)
    return force_over_r, energy


def forces(everyone, mine, neighbours):
    """Sum over the neighbour list; `neighbours` holds ATOMS where a slot is empty."""
    other = everyone[jnp.minimum(neighbours, ATOMS - 1)]
    d = minimum_image(mine[:, None, :] - other)
    r2 = jnp.where(neighbours < ATOMS, jnp.sum(d * d, axis=-1), jnp.inf)
    f, e = pair_terms(r2)
    return jnp.sum(f[..., None] * d, axis=1), 0.5 * jnp.sum(e)


def build_integrator(mesh):
    by_atom = NamedSharding(mesh, P("atoms"))
    everywhere = NamedSharding(mesh, P())

    def verlet(system, _):
        mine = jax.lax.with_sharding_constraint(system.position, by_atom)
        f, _ = forces(system.position, mine, system.neighbours)
        half = system.velocity + 0.5 * DT * f
        moved = jnp.mod(mine + DT * half, BOX)
        everyone = jax.lax.with_sharding_constraint(moved, everywhere)
        f, potential = forces(everyone, moved, system.neighbours)
        velocity = half + 0.5 * DT * f
        kinetic = 0.5 * jnp.sum(velocity * velocity)
        return System(everyone, velocity, system.neighbours), jnp.stack([kinetic, potential])

    def simulate(system):
        system, energies = jax.lax.scan(verlet, system, None, length=10)
        return system.position, system.velocity, energies

    return simulate


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("atoms",))
    split = NamedSharding(mesh, P("atoms", None))
    system = System(
        position=jax.ShapeDtypeStruct((ATOMS, 3), jnp.float32, sharding=NamedSharding(mesh, P())),
        velocity=jax.ShapeDtypeStruct((ATOMS, 3), jnp.float32, sharding=split),
        neighbours=jax.ShapeDtypeStruct((ATOMS, NEIGHBOURS), jnp.int32, sharding=split),
    )
    out = (NamedSharding(mesh, P()), split, NamedSharding(mesh, P()))
    return jax.jit(build_integrator(mesh), out_shardings=out), (system,)
