# mypy: ignore-errors
"""Clean. Direct-summation N-body cluster: bodies split over the devices, blocks of sources passed round a ring so
that no device ever holds all of them; snapshots of the orbits are stacked split by body.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

BODIES, SNAPSHOTS, STEPS = 16_384, 512, 8
SOFTENING, DT = 1e-2, 1e-3


def pull(targets, sources, mass):
    """Acceleration of the targets by one block of sources."""
    gap = sources[None, :, :] - targets[:, None, :]
    r2 = jnp.sum(gap * gap, axis=-1) + SOFTENING**2
    return jnp.einsum("ijk,ij->ik", gap, mass[None, :] * jax.lax.rsqrt(r2) / r2)


def ring_pull(position, mass):
    size = jax.lax.axis_size("body")
    turn = [(i, (i + 1) % size) for i in range(size)]

    def hop(_, carry):
        acceleration, block, weights = carry
        acceleration = acceleration + pull(position, block, weights)
        return acceleration, jax.lax.ppermute(block, "body", turn), jax.lax.ppermute(weights, "body", turn)

    start = (jnp.zeros_like(position), position, mass)
    return jax.lax.fori_loop(0, size, hop, start)[0]


def leapfrog(position, velocity, mass):
    velocity = velocity + 0.5 * DT * ring_pull(position, mass)
    position = position + DT * velocity
    return position, velocity + 0.5 * DT * ring_pull(position, mass)


def orbits(position, velocity, mass):
    def snapshot(state, _):
        state = jax.lax.fori_loop(0, STEPS, lambda _, s: leapfrog(*s, mass), state)
        position, velocity = state
        kinetic = 0.5 * jax.lax.psum(jnp.sum(mass * jnp.sum(velocity**2, -1)), "body")
        return state, (jnp.concatenate([position, velocity], axis=-1), kinetic)

    (position, velocity), (track, kinetic) = jax.lax.scan(snapshot, (position, velocity), length=SNAPSHOTS)
    return position, velocity, track, kinetic


def make_clean(devices):
    mesh = Mesh(np.asarray(devices), ("body",))
    by_body = P("body")
    run = jax.shard_map(
        orbits,
        mesh=mesh,
        in_specs=(by_body, by_body, by_body),
        out_specs=(by_body, by_body, P(None, "body"), P()),
        check_vma=False,
    )

    def array(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, by_body))

    return jax.jit(run, donate_argnums=(0, 1)), (array(BODIES, 3), array(BODIES, 3), array(BODIES))
