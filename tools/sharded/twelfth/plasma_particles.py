# mypy: ignore-errors
"""Fault: stack. Each snapshot that the scan stacks is gathered onto every device first, so the
whole trajectory is replicated although particles are divided over the devices."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

PARTICLES = 1 << 18
CELLS = 64
SNAPSHOTS, SUBSTEPS = 48, 8
DT, CHARGE = 0.05, -1.0


class Particles(NamedTuple):
    position: jax.Array
    velocity: jax.Array


class Fields(NamedTuple):
    electric: jax.Array
    magnetic: jax.Array


def nearest_cell(position):
    return jnp.mod(jnp.floor(position), CELLS).astype(jnp.int32)


def deposit(position):
    """Charge density on the grid; the grid is small and whole everywhere."""
    cell = nearest_cell(position)
    flat = (cell[:, 0] * CELLS + cell[:, 1]) * CELLS + cell[:, 2]
    counts = jnp.zeros((CELLS**3,), jnp.float32).at[flat].add(CHARGE)
    return counts.reshape(CELLS, CELLS, CELLS)


def relax(density, electric):
    """One Jacobi-like correction of the electric field towards Gauss's law."""
    divergence = sum(
        (jnp.roll(electric[..., i], -1, i) - jnp.roll(electric[..., i], 1, i)) / 2 for i in range(3)
    )
    residual = density - density.mean() - divergence
    correction = jnp.stack(
        [(jnp.roll(residual, 1, i) - jnp.roll(residual, -1, i)) / 12 for i in range(3)], -1
    )
    return electric + correction


def boris_push(particles, fields):
    i, j, k = jnp.moveaxis(nearest_cell(particles.position), -1, 0)
    e, b = fields.electric[i, j, k], fields.magnetic[i, j, k]
    half = 0.5 * DT * CHARGE
    v = particles.velocity + half * e
    t = half * b
    s = 2 * t / (1 + jnp.sum(t * t, -1, keepdims=True))
    v = v + jnp.cross(v + jnp.cross(v, t), s) + half * e
    return Particles(jnp.mod(particles.position + DT * v, CELLS), v)


class Simulation:
    def __init__(self, mesh):
        self.by_particle = NamedSharding(mesh, P("p", None))
        self.whole = NamedSharding(mesh, P())

    def substep(self, _, state):
        particles, fields = state
        particles = boris_push(particles, fields)
        electric = relax(deposit(particles.position), fields.electric)
        particles = jax.lax.with_sharding_constraint(particles, self.by_particle)
        return particles, fields._replace(electric=electric)

    def snapshot(self, particles):
        """What the trajectory file keeps of a moment."""
        kept = jnp.concatenate([particles.position, particles.velocity], axis=-1)
        kept = kept.astype(jnp.bfloat16)
        return jax.lax.with_sharding_constraint(kept, self.whole)  # FAULT

    def run(self, particles, fields):
        def interval(state, _):
            state = jax.lax.fori_loop(0, SUBSTEPS, self.substep, state)
            return state, self.snapshot(state[0])

        (particles, fields), trajectory = jax.lax.scan(
            interval, (particles, fields), None, length=SNAPSHOTS
        )
        return particles, fields, trajectory


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(8), ("p",))
    sim = Simulation(mesh)
    rows = jax.ShapeDtypeStruct((PARTICLES, 3), jnp.float32, sharding=sim.by_particle)
    grid = jax.ShapeDtypeStruct((CELLS, CELLS, CELLS, 3), jnp.float32, sharding=sim.whole)
    fn = jax.jit(sim.run, donate_argnums=(0, 1))
    return fn, (Particles(rows, rows), Fields(grid, grid))
