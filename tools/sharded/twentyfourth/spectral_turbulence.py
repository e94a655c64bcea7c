# mypy: ignore-errors
"""Fault: reshard. The transposition between the two slab layouts gathers the whole field on every device and cuts a
slab out of it, instead of exchanging blocks.

Pseudo-spectral Navier-Stokes solver in a periodic box, slab decomposition, distributed FFTs in shard_map.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

N = 256
VISCOSITY = 1e-3
DT = 2e-3
STEPS = 10
AXIS = "slab"


def other_slabs(x, split, concat):
    """From slabs along `concat` to slabs along `split`."""
    size = x.shape[split] // lax.axis_size(AXIS)
    x = lax.all_gather(x, AXIS, axis=concat, tiled=True)  # FAULT
    return lax.dynamic_slice_in_dim(x, lax.axis_index(AXIS) * size, size, axis=split)  # FAULT


def forward(u):
    """Slabs along x in space to slabs along ky in Fourier space (half spectrum along z)."""
    u = jnp.fft.fft(jnp.fft.rfft(u, axis=2), axis=1)
    return jnp.fft.fft(other_slabs(u, split=1, concat=0), axis=0)


def inverse(u_hat):
    u_hat = jnp.fft.ifft(u_hat, axis=0)
    u_hat = other_slabs(u_hat, split=0, concat=1)
    return jnp.fft.irfft(jnp.fft.ifft(u_hat, axis=1), n=N, axis=2)


def wavenumbers():
    full = jnp.fft.fftfreq(N, 1 / N)
    local = N // lax.axis_size(AXIS)
    mine = lax.dynamic_slice_in_dim(full, lax.axis_index(AXIS) * local, local)
    return full[:, None, None], mine[None, :, None], jnp.fft.rfftfreq(N, 1 / N)[None, None, :]


def project(field, k, k2):
    """The divergence-free part of a field."""
    divergence = sum(ki * fi for ki, fi in zip(k, field)) / jnp.where(k2 == 0, 1.0, k2)
    return [fi - ki * divergence for ki, fi in zip(k, field)]


def tendency(u_hat, k, k2):
    keep = (abs(k[0]) < N / 3) & (abs(k[1]) < N / 3) & (k[2] < N / 3)
    u = [inverse(c) for c in u_hat]
    advection = []
    for i in range(3):
        fluxes = [1j * k[j] * forward(u[i] * u[j]) for j in range(3)]
        advection.append(-sum(fluxes) * keep)
    return project(advection, k, k2)


def solve(u_hat):
    k = wavenumbers()
    k2 = sum(ki**2 for ki in k)
    decay = jnp.exp(-VISCOSITY * k2 * DT)

    def euler(u_hat, _):
        rates = tendency(u_hat, k, k2)
        u_hat = [decay * (c + DT * r) for c, r in zip(u_hat, rates)]
        energy = lax.psum(sum(jnp.sum(jnp.abs(c) ** 2) for c in u_hat), AXIS)
        return u_hat, energy

    return lax.scan(euler, u_hat, length=STEPS)


def make_faulty(devices):
    mesh = Mesh(np.asarray(devices).reshape(8), (AXIS,))
    spectral = P(None, AXIS, None)
    sharding = NamedSharding(mesh, spectral)
    component = jax.ShapeDtypeStruct((N, N, N // 2 + 1), jnp.complex64, sharding=sharding)

    mapped = partial(jax.shard_map, mesh=mesh, in_specs=([spectral] * 3,), out_specs=([spectral] * 3, P()))
    return jax.jit(mapped(solve), donate_argnums=0), ([component] * 3,)
