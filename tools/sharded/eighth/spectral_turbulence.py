# mypy: ignore-errors
"""Fault: reshard. The slab-to-pencil transposition of the distributed FFT gathers the whole field on every device and
cuts out the wanted part, where an all-to-all would keep an eighth per device."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

N = 128
STEPS = 4
AXIS = "slab"


def transpose_slabs(u, split, concat):
    """Moves the split from dimension `concat` to dimension `split` of (component, x, y, z) fields."""
    full = jax.lax.all_gather(u, AXIS, axis=concat, tiled=True)  # FAULT
    width = u.shape[split] // jax.lax.axis_size(AXIS)
    return jax.lax.dynamic_slice_in_dim(full, jax.lax.axis_index(AXIS) * width, width, axis=split)


def fft3(u):
    u = jnp.fft.fft2(u, axes=(2, 3))
    u = transpose_slabs(u, split=2, concat=1)
    return jnp.fft.fft(u, axis=1)


def ifft3(uh):
    u = jnp.fft.ifft(uh, axis=1)
    u = transpose_slabs(u, split=1, concat=2)
    return jnp.fft.ifft2(u, axes=(2, 3)).real


def wavenumbers():
    """Wave vectors of this device's part of spectral space, which is split along y."""
    k = jnp.fft.fftfreq(N, 1.0 / N)
    width = N // jax.lax.axis_size(AXIS)
    ky = jax.lax.dynamic_slice_in_dim(k, jax.lax.axis_index(AXIS) * width, width)
    return k[:, None, None], ky[None, :, None], k[None, None, :]


def project(uh, k):
    """Removes the compressive part."""
    square = k[0] ** 2 + k[1] ** 2 + k[2] ** 2
    dot = (k[0] * uh[0] + k[1] * uh[1] + k[2] * uh[2]) / jnp.maximum(square, 1.0)
    return jnp.stack([uh[i] - k[i] * dot for i in range(3)])


def curl(uh, k):
    return 1j * jnp.stack([
        k[1] * uh[2] - k[2] * uh[1],
        k[2] * uh[0] - k[0] * uh[2],
        k[0] * uh[1] - k[1] * uh[0],
    ])


def rhs(uh, k, viscosity):
    u, w = ifft3(uh), ifft3(curl(uh, k))
    nonlinear = fft3(jnp.cross(u, w, axis=0).astype(jnp.complex64))
    square = k[0] ** 2 + k[1] ** 2 + k[2] ** 2
    keep = jnp.sqrt(square) < N / 3
    return project(jnp.where(keep, nonlinear, 0), k) - viscosity * square * uh


def advance(u, viscosity, dt):
    k = wavenumbers()
    uh = fft3(u.astype(jnp.complex64))

    def step(uh, _):
        mid = uh + 0.5 * dt * rhs(uh, k, viscosity)
        uh = uh + dt * rhs(mid, k, viscosity)
        energy = jax.lax.psum(jnp.sum(jnp.abs(uh) ** 2), AXIS) / (2.0 * float(N) ** 6)
        return uh, energy

    uh, energy = jax.lax.scan(step, uh, None, length=STEPS)
    return ifft3(uh), energy


def make_faulty(devices):
    mesh = Mesh(np.array(devices), (AXIS,))
    slabs = P(None, AXIS, None, None)
    mapped = jax.shard_map(
        advance, mesh=mesh, in_specs=(slabs, P(), P()), out_specs=(slabs, P()), check_vma=False
    )
    velocity = jax.ShapeDtypeStruct((3, N, N, N), jnp.float32, sharding=NamedSharding(mesh, slabs))
    scalar = jax.ShapeDtypeStruct((), jnp.float32, sharding=NamedSharding(mesh, P()))
    return functools.partial(jax.jit, donate_argnums=0)(mapped), (velocity, scalar, scalar)
