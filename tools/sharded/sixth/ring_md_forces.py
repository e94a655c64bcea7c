# mypy: ignore-errors
"""Clean. All-pairs molecular dynamics in shard_map: atoms are split, blocks of positions go round a ring, small tables are replicated."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

ATOMS, SPECIES, STEPS = 32_768, 64, 10
DT, CUTOFF = 1e-3, 2.5


class State(NamedTuple):
    pos: jax.Array
    vel: jax.Array
    species: jax.Array


def pair_force(xi, si, xj, sj, eps, sigma, box):
    d = xi[:, None, :] - xj[None, :, :]
    d = d - box * jnp.round(d / box)
    r2 = jnp.sum(d * d, -1) + 1e-9
    e, s = eps[si[:, None], sj[None, :]], sigma[si[:, None], sj[None, :]]
    q = (s * s / r2) ** 3
    mag = jnp.where((r2 < CUTOFF**2) & (r2 > 1e-6), 24 * e * (2 * q * q - q) / r2, 0.0)
    return jnp.einsum("ij,ijk->ik", mag, d)


def ring_forces(pos, species, eps, sigma, box):
    n = lax.axis_size("atoms")
    perm = [(i, (i + 1) % n) for i in range(n)]

    def against(xj, sj):
        xi = pos.reshape(-1, 512, 3)
        si = species.reshape(-1, 512)
        return lax.map(lambda a: pair_force(*a, xj, sj, eps, sigma, box), (xi, si)).reshape(pos.shape)

    def hop(_, carry):
        f, xj, sj = carry
        f = f + against(xj, sj)
        return f, lax.ppermute(xj, "atoms", perm), lax.ppermute(sj, "atoms", perm)

    f, _, _ = lax.fori_loop(0, n, hop, (jnp.zeros_like(pos), pos, species))
    return f


def simulate_local(state, eps, sigma, box):
    def verlet(carry, _):
        s, f = carry
        vel = s.vel + 0.5 * DT * f
        pos = jnp.mod(s.pos + DT * vel, box)
        f = ring_forces(pos, s.species, eps, sigma, box)
        vel = vel + 0.5 * DT * f
        kinetic = lax.psum(0.5 * jnp.sum(vel**2), "atoms")
        return (State(pos, vel, s.species), f), (pos, kinetic)

    f0 = ring_forces(state.pos, state.species, eps, sigma, box)
    (state, _), (frames, kinetic) = lax.scan(verlet, (state, f0), length=STEPS)
    return state, frames, kinetic


def make_clean(devices):
    mesh = Mesh(np.array(devices), ("atoms",))
    by_atom, rep = NamedSharding(mesh, P("atoms")), NamedSharding(mesh, P())
    state = State(
        jax.ShapeDtypeStruct((ATOMS, 3), jnp.float32, sharding=by_atom),
        jax.ShapeDtypeStruct((ATOMS, 3), jnp.float32, sharding=by_atom),
        jax.ShapeDtypeStruct((ATOMS,), jnp.int32, sharding=by_atom),
    )
    table = jax.ShapeDtypeStruct((SPECIES, SPECIES), jnp.float32, sharding=rep)
    box = jax.ShapeDtypeStruct((3,), jnp.float32, sharding=rep)
    sim = jax.shard_map(simulate_local, mesh=mesh, in_specs=(P("atoms"), P(), P(), P()),
                        out_specs=(P("atoms"), P(None, "atoms"), P()))
    return jax.jit(sim, donate_argnums=0), (state, table, table, box)
