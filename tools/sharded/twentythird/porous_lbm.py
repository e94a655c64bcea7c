# mypy: ignore-errors
"""Fault: donated. The populations come in split over both axes of the mesh and go out split over one only, so the
donated buffers fit no result and the donation is lost.

Lattice-Boltzmann flow (D3Q19) through a porous rock sample: several collide-and-stream steps for each call, the
populations handed back to the next call.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"

SIDE = (160, 128, 128)
STEPS_PER_CALL = 10
OMEGA = 1.2

VELOCITIES = np.array(
    [(0, 0, 0)]
    + [(s, 0, 0) for s in (1, -1)]
    + [(0, s, 0) for s in (1, -1)]
    + [(0, 0, s) for s in (1, -1)]
    + [(s, t, 0) for s in (1, -1) for t in (1, -1)]
    + [(s, 0, t) for s in (1, -1) for t in (1, -1)]
    + [(0, s, t) for s in (1, -1) for t in (1, -1)]
)
WEIGHTS = np.array([1 / 3] + [1 / 18] * 6 + [1 / 36] * 12, np.float32)
OPPOSITE = np.array([int(np.where((VELOCITIES == -v).all(1))[0][0]) for v in VELOCITIES])


def equilibrium(density, momentum):
    square = jnp.sum(momentum * momentum, axis=0)
    parts = []
    for velocity, weight in zip(VELOCITIES, WEIGHTS):
        along = sum(int(c) * momentum[i] for i, c in enumerate(velocity) if c)
        parts.append(weight * density * (1.0 + 3.0 * along + 4.5 * along * along - 1.5 * square))
    return jnp.stack(parts)


def collide(populations, solid, force):
    density = populations.sum(axis=0)
    momentum = []
    for axis in range(3):
        total = sum(int(v[axis]) * populations[i] for i, v in enumerate(VELOCITIES) if v[axis])
        momentum.append(total / density + force[axis])
    relaxed = populations + OMEGA * (equilibrium(density, jnp.stack(momentum)) - populations)
    return jnp.where(solid, populations[OPPOSITE], relaxed)


def stream(populations):
    moved = [jnp.roll(populations[i], tuple(int(c) for c in v), (0, 1, 2)) for i, v in enumerate(VELOCITIES)]
    return jnp.stack(moved)


class Solver:
    def __init__(self, mesh):
        self.mesh = mesh
        self.populations = NamedSharding(mesh, P(None, "x", "y", None))
        self.geometry = NamedSharding(mesh, P("x", "y", None))
        self.scalars = NamedSharding(mesh, P())

    def advance(self, populations, solid, force):
        def step(populations, _):
            populations = stream(collide(populations, solid, force))
            return jax.lax.with_sharding_constraint(populations, self.populations), None

        populations, _ = jax.lax.scan(step, populations, None, length=STEPS_PER_CALL)
        flux = jnp.mean(sum(int(v[0]) * populations[i] for i, v in enumerate(VELOCITIES)))
        return populations, flux

    def jitted(self):
        slabs = NamedSharding(self.mesh, P(None, "x"))  # FAULT
        return jax.jit(
            self.advance,
            in_shardings=(self.populations, self.geometry, self.scalars),
            out_shardings=(slabs, self.scalars),  # FAULT
            donate_argnums=0,
        )

    def arguments(self):
        return (
            jax.ShapeDtypeStruct((19, *SIDE), jnp.float32, sharding=self.populations),
            jax.ShapeDtypeStruct(SIDE, jnp.bool_, sharding=self.geometry),
            jax.ShapeDtypeStruct((3,), jnp.float32, sharding=self.scalars),
        )


def make_faulty(devices):
    solver = Solver(Mesh(np.asarray(devices).reshape(2, 2), ("x", "y")))
    return solver.jitted(), solver.arguments()
