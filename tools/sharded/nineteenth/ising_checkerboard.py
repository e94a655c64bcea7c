# mypy: ignore-errors
"""Clean. Replicas of a spin-glass lattice over a 4 x 4 mesh: temperatures on one axis, slabs of the lattice
on the other; the couplings do not depend on the temperature and are split over the slabs only.

Metropolis sweeps in checkerboard order inside a shard_map; neighbouring slabs exchange one plane at a time
with ppermute. Spins are int8 and donated.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

TEMPERATURES, L = 64, 256
SWEEPS = 20

SPINS = P("temperature", "slab", None, None)
COUPLINGS = P(None, "slab", None, None)


def halo(plane, towards, size):
    return jax.lax.ppermute(plane, "slab", [(i, (i + towards) % size) for i in range(size)])


def shift_slabs(x, by, axis):
    """jnp.roll by one site, where the given axis is the one which is cut into slabs."""
    size = jax.lax.axis_size("slab")
    if by == 1:
        edge = halo(jax.lax.slice_in_dim(x, x.shape[axis] - 1, None, axis=axis), 1, size)
        return jnp.concatenate([edge, jax.lax.slice_in_dim(x, 0, x.shape[axis] - 1, axis=axis)], axis)
    edge = halo(jax.lax.slice_in_dim(x, 0, 1, axis=axis), -1, size)
    return jnp.concatenate([jax.lax.slice_in_dim(x, 1, None, axis=axis), edge], axis)


def neighbour_field(spins, couplings):
    """The sum of coupling times spin over the six neighbours of one lattice spins[z, y, x]."""
    jz, jy, jx = couplings
    field = jz * shift_slabs(spins, -1, 0) + shift_slabs(jz * spins, 1, 0)
    field += jy * jnp.roll(spins, -1, 1) + jnp.roll(jy * spins, 1, 1)
    return field + jx * jnp.roll(spins, -1, 2) + jnp.roll(jx * spins, 1, 2)


def sweep(key, spins, couplings, beta, colour):
    def update(spins, parity_key):
        parity, key = parity_key
        field = neighbour_field(spins, couplings).astype(jnp.float32)
        gain = -2.0 * beta * spins.astype(jnp.float32) * field
        accept = jnp.log(jax.random.uniform(key, spins.shape, minval=1e-12)) < gain
        flip = accept & (colour == parity)
        return jnp.where(flip, -spins, spins), None

    spins, _ = jax.lax.scan(update, spins, (jnp.arange(2), jax.random.split(key)))
    return spins


def observables(spins, couplings):
    energy = -jnp.sum((spins * neighbour_field(spins, couplings)).astype(jnp.float32)) / 2
    magnetisation = jnp.sum(spins.astype(jnp.float32))
    return jax.lax.psum(jnp.stack([energy, magnetisation]), "slab") / L**3


def make_clean(devices):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("temperature", "slab"))

    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(SPINS, COUPLINGS, P("temperature"), P()),
        out_specs=(SPINS, P("temperature")),
        check_vma=False,
    )
    def run(spins, couplings, beta, key):
        for name in ("temperature", "slab"):
            key = jax.random.fold_in(key, jax.lax.axis_index(name))
        depth = spins.shape[1]
        z = jnp.arange(depth) + jax.lax.axis_index("slab") * depth
        colour = (z[:, None, None] + jnp.arange(L)[:, None] + jnp.arange(L)) % 2

        def one(i, carry):
            """One temperature after the other, in place: the random numbers of one are held only."""
            spins, seen = carry
            keys = jax.random.split(jax.random.fold_in(key, i), SWEEPS)
            s = jax.lax.dynamic_index_in_dim(spins, i, keepdims=False)
            s, _ = jax.lax.scan(lambda s, k: (sweep(k, s, couplings, beta[i], colour), None), s, keys)
            spins = jax.lax.dynamic_update_index_in_dim(spins, s, i, 0)
            return spins, seen.at[i].set(observables(s, couplings))

        return jax.lax.fori_loop(0, spins.shape[0], one, (spins, jnp.zeros((spins.shape[0], 2))))

    def put(shape, dtype, spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    spins = put((TEMPERATURES, L, L, L), jnp.int8, SPINS)
    couplings = put((3, L, L, L), jnp.int8, COUPLINGS)
    beta = put((TEMPERATURES,), jnp.float32, P("temperature"))
    key = put((2,), jnp.uint32, P())
    return jax.jit(run, donate_argnums=0), (spins, couplings, beta, key)
