# mypy: ignore-errors
"""Clean. A pseudo-spectral turbulence solver; slabs change axis by an all-to-all."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

N = 128
VISCOSITY = 1.0 / 800.0
SUBSTEPS = 8
AXIS = "slab"
WAVE_SPEC = P(None, None, AXIS)  # its transform [3, kx, ky, kz]: slabs in ky


def exchange(volume, split, join):
    """Slabs along `join` become slabs along `split`."""
    return lax.all_to_all(volume, AXIS, split_axis=split, concat_axis=join, tiled=True)


def to_wave(u):
    """[c, x/p, y, z] real to [c, kx, ky/p, kz] complex."""
    planes = jnp.fft.fft(jnp.fft.rfft(u, axis=3), axis=2)
    return jnp.fft.fft(exchange(planes, split=2, join=1), axis=1)


def to_real(w):
    columns = exchange(jnp.fft.ifft(w, axis=1), split=1, join=2)
    return jnp.fft.irfft(jnp.fft.ifft(columns, axis=2), n=N, axis=3)


def wave_numbers():
    """kx, ky (this device's part) and kz, shaped to broadcast over a transform."""
    full = jnp.fft.fftfreq(N, 1.0 / N).astype(jnp.float32)
    width = N // lax.axis_size(AXIS)
    part = lax.dynamic_slice_in_dim(full, lax.axis_index(AXIS) * width, width)
    half = jnp.arange(N // 2 + 1, dtype=jnp.float32)
    return full[:, None, None], part[None, :, None], half[None, None, :]


def cross(a, b):
    return jnp.stack(
        [
            a[1] * b[2] - a[2] * b[1],
            a[2] * b[0] - a[0] * b[2],
            a[0] * b[1] - a[1] * b[0],
        ]
    )


def curl(w, k):
    kx, ky, kz = k
    return 1j * jnp.stack([ky * w[2] - kz * w[1], kz * w[0] - kx * w[2], kx * w[1] - ky * w[0]])


def tendency(w, k, k2, keep):
    """u x vorticity, dealiased and projected on divergence-free fields, less diffusion."""
    forcing = to_wave(cross(to_real(w), to_real(curl(w, k)))) * keep
    divergence = sum(ki * fi for ki, fi in zip(k, forcing, strict=True)) / jnp.maximum(k2, 1.0)
    projected = forcing - jnp.stack([ki * divergence for ki in k])
    return projected - VISCOSITY * k2 * w


def advance(w, dt):
    """Heun's method, `SUBSTEPS` times; returns the new state and the energy after each."""
    k = wave_numbers()
    k2 = sum(ki * ki for ki in k)
    keep = jnp.ones((), jnp.float32)
    for ki in k:
        keep = keep * (jnp.abs(ki) < N / 3)

    def substep(w, _):
        first = tendency(w, k, k2, keep)
        second = tendency(w + dt * first, k, k2, keep)
        w = w + 0.5 * dt * (first + second)
        energy = lax.psum(jnp.sum(jnp.square(jnp.abs(w))), AXIS) / float(N) ** 6
        return w, energy

    return lax.scan(substep, w, None, length=SUBSTEPS)


def make_fixed(devices):
    mesh = Mesh(np.array(devices), (AXIS,))
    wave = jax.ShapeDtypeStruct(
        (3, N, N, N // 2 + 1), jnp.complex64, sharding=NamedSharding(mesh, WAVE_SPEC)
    )
    dt = jax.ShapeDtypeStruct((), jnp.float32, sharding=NamedSharding(mesh, P()))
    step = jax.shard_map(
        advance, mesh=mesh, in_specs=(WAVE_SPEC, P()), out_specs=(WAVE_SPEC, P())
    )
    return jax.jit(step, donate_argnums=0), (wave, dt)
