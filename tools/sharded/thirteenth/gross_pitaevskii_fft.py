# mypy: ignore-errors
"""Fault: reshard. To turn the slabs from x to y the wave function is gathered whole on every device and then sliced, twice per step."""
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

N = (256, 256, 192)
BOX = (20.0, 20.0, 16.0)
COUPLING = 120.0
DT = 1e-3
STEPS = 50
AXIS = "slab"


def frequencies(i):
    return 2 * math.pi * np.fft.fftfreq(N[i], BOX[i] / N[i]).astype(np.float32)


def local_part(values, size):
    """This device's share of a short table."""
    return lax.dynamic_slice_in_dim(jnp.asarray(values), lax.axis_index(AXIS) * size, size)


def turn(field, have, want):
    """Slabs along `have` become slabs along `want`."""
    block = N[want] // lax.axis_size(AXIS)
    whole = lax.all_gather(field, AXIS, axis=have, tiled=True)  # FAULT
    return lax.dynamic_slice_in_dim(whole, lax.axis_index(AXIS) * block, block, want)  # FAULT


def fft3(psi):
    """In: slabs along x. Out: slabs along y, in frequency."""
    psi = jnp.fft.fft(jnp.fft.fft(psi, axis=2), axis=1)
    return jnp.fft.fft(turn(psi, 0, 1), axis=0)


def ifft3(psi_k):
    psi_k = turn(jnp.fft.ifft(psi_k, axis=0), 1, 0)
    return jnp.fft.ifft(jnp.fft.ifft(psi_k, axis=1), axis=2)


def kinetic_phase(n_dev):
    kx, ky, kz = (frequencies(i) for i in range(3))
    ky = local_part(ky, N[1] // n_dev)
    k2 = jnp.square(kx)[:, None, None] + jnp.square(ky)[None, :, None] + jnp.square(kz)[None, None, :]
    return jnp.exp(-0.5j * DT * k2)


def potential_phase(psi, trap):
    density = jnp.square(psi.real) + jnp.square(psi.imag)
    return jnp.exp(-0.5j * DT * (trap + COUPLING * density))


def norm(psi):
    cell = math.prod(b / n for b, n in zip(BOX, N))
    return lax.psum(jnp.sum(jnp.square(psi.real) + jnp.square(psi.imag)), AXIS) * cell


def evolve(n_dev, psi, trap):
    """STEPS steps of Strang splitting; the norm after each of them is the check."""
    phase = kinetic_phase(n_dev)

    def strang(_, psi):
        psi = psi * potential_phase(psi, trap)
        psi = ifft3(phase * fft3(psi))
        return psi * potential_phase(psi, trap)

    psi = lax.fori_loop(0, STEPS, strang, psi)
    return psi, norm(psi)


def make_faulty(devices):
    mesh = Mesh(np.array(devices), (AXIS,))
    slabs = P(AXIS, None, None)
    body = jax.shard_map(partial(evolve, mesh.size), mesh=mesh, in_specs=(slabs, slabs), out_specs=(slabs, P()))
    psi = jax.ShapeDtypeStruct(N, jnp.complex64, sharding=NamedSharding(mesh, slabs))
    trap = jax.ShapeDtypeStruct(N, jnp.float32, sharding=NamedSharding(mesh, slabs))
    return jax.jit(body, donate_argnums=0), (psi, trap)
