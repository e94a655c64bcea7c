# mypy: ignore-errors
"""Fault: reshard. The slab transpose of the distributed FFT gathers the whole field on every device
and cuts its slab out of it, in place of an all-to-all."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

N = 128
NU, DT = 1e-3, 5e-3

# Physical fields are divided along x, spectral ones along y: (component, x, y, z)
PHYSICAL = P(None, "slab", None, None)
SPECTRAL = P(None, None, "slab", None)


def swap_slabs(field, split, join):
    """Divide `field` along `split` where it was divided along `join`."""
    whole = lax.all_gather(field, "slab", axis=join, tiled=True)  # FAULT
    mine = field.shape[split] // lax.axis_size("slab")
    return lax.dynamic_slice_in_dim(whole, lax.axis_index("slab") * mine, mine, axis=split)  # FAULT


def to_spectral(u):
    half = jnp.fft.fft(jnp.fft.rfft(u, axis=3), axis=2)
    return jnp.fft.fft(swap_slabs(half, split=2, join=1), axis=1)


def to_physical(uh):
    half = swap_slabs(jnp.fft.ifft(uh, axis=1), split=1, join=2)
    return jnp.fft.irfft(jnp.fft.ifft(half, axis=2), n=N, axis=3)


def wavenumbers():
    """This device's part of the wave vector, broadcastable to a spectral field."""
    k = jnp.fft.fftfreq(N, 1.0 / N)
    rows = N // lax.axis_size("slab")
    ky = lax.dynamic_slice_in_dim(k, lax.axis_index("slab") * rows, rows)
    kz = jnp.arange(N // 2 + 1, dtype=k.dtype)
    return k[:, None, None], ky[None, :, None], kz[None, None, :]


def curl(k, a):
    kx, ky, kz = k
    return 1j * jnp.stack([ky * a[2] - kz * a[1], kz * a[0] - kx * a[2], kx * a[1] - ky * a[0]])


def project(k, a):
    """Remove the divergent part."""
    kx, ky, kz = k
    k2 = kx**2 + ky**2 + kz**2
    div = (kx * a[0] + ky * a[1] + kz * a[2]) / jnp.where(k2 == 0, 1.0, k2)
    return jnp.stack([a[0] - kx * div, a[1] - ky * div, a[2] - kz * div])


def dealias(k, a):
    keep = (abs(k[0]) < N / 3) & (abs(k[1]) < N / 3) & (abs(k[2]) < N / 3)
    return jnp.where(keep, a, 0)


def rhs(uh):
    k = wavenumbers()
    u, w = to_physical(uh), to_physical(curl(k, uh))
    nonlinear = to_spectral(jnp.cross(u, w, axis=0))
    k2 = k[0] ** 2 + k[1] ** 2 + k[2] ** 2
    return project(k, dealias(k, nonlinear)) - NU * k2 * uh


def rk2(uh):
    mid = uh + 0.5 * DT * rhs(uh)
    return uh + DT * rhs(mid)


def advance(u, steps):
    """Velocity after a number of time steps, and the mean kinetic energy."""
    uh = lax.fori_loop(0, steps, lambda _, s: rk2(s), to_spectral(u))
    u = to_physical(uh)
    energy = lax.pmean(0.5 * jnp.mean(jnp.sum(u * u, axis=0)), "slab")
    return u, energy


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("slab",))
    body = jax.shard_map(lambda u: advance(u, 10), mesh=mesh, in_specs=PHYSICAL, out_specs=(PHYSICAL, P()),
                         check_vma=False)
    u = jax.ShapeDtypeStruct((3, N, N, N), jnp.float32, sharding=NamedSharding(mesh, PHYSICAL))
    return jax.jit(body, donate_argnums=0), (u,)
