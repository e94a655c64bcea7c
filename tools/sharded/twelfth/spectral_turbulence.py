# mypy: ignore-errors
"""Fault: reshard. To turn slabs along x into slabs along y, the Fourier transform gathers the
whole spectrum on every device and cuts the device's slab out of it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "cpu"

N = 192
STEPS = 4
VISCOSITY, DT = 1e-3, 1e-2
AXIS = "slab"


def slabs_x_to_y(block):
    """(component, n/d, n, n/2+1) divided along x -> (component, n, n/d, n/2+1) along y."""
    width = N // jax.lax.axis_size(AXIS)
    full = jax.lax.all_gather(block, AXIS, axis=1, tiled=True)  # FAULT
    start = jax.lax.axis_index(AXIS) * width
    return jax.lax.dynamic_slice_in_dim(full, start, width, axis=2)


def slabs_y_to_x(block):
    return jax.lax.all_to_all(block, AXIS, split_axis=1, concat_axis=2, tiled=True)


def forward_fft(field):
    """Real field, divided along x, to its spectrum, divided along ky."""
    spectrum = jnp.fft.fft(jnp.fft.rfft(field, axis=3), axis=2)
    return jnp.fft.fft(slabs_x_to_y(spectrum), axis=1)


def inverse_fft(spectrum):
    spectrum = slabs_y_to_x(jnp.fft.ifft(spectrum, axis=1))
    return jnp.fft.irfft(jnp.fft.ifft(spectrum, axis=2), n=N, axis=3)


def wavenumbers():
    """kx, ky, kz of this device's slab of the spectrum."""
    width = N // jax.lax.axis_size(AXIS)
    k = jnp.fft.fftfreq(N, 1.0 / N).astype(jnp.float32)
    ky = jax.lax.dynamic_slice_in_dim(k, jax.lax.axis_index(AXIS) * width, width)
    kz = jnp.arange(N // 2 + 1, dtype=jnp.float32)
    return k[:, None, None], ky[None, :, None], kz[None, None, :]


def project(velocity):
    """Removes the part of a spectrum that has divergence."""
    kx, ky, kz = wavenumbers()
    square = kx**2 + ky**2 + kz**2
    dot = (kx * velocity[0] + ky * velocity[1] + kz * velocity[2]) / jnp.maximum(square, 1.0)
    return velocity - jnp.stack([kx * dot, ky * dot, kz * dot])


def advance(_, velocity):
    kx, ky, kz = wavenumbers()
    curl = 1j * jnp.stack(
        [
            ky * velocity[2] - kz * velocity[1],
            kz * velocity[0] - kx * velocity[2],
            kx * velocity[1] - ky * velocity[0],
        ]
    )
    nonlinear = jnp.cross(inverse_fft(velocity), inverse_fft(curl), axis=0)
    force = project(forward_fft(nonlinear))
    decay = jnp.exp(-VISCOSITY * DT * (kx**2 + ky**2 + kz**2))
    return decay * (velocity + DT * force)


def simulate(velocity, *, steps):
    spectrum = project(forward_fft(velocity))
    spectrum = jax.lax.fori_loop(0, steps, advance, spectrum)
    velocity = inverse_fft(spectrum)
    energy = 0.5 * jax.lax.pmean(jnp.mean(jnp.square(velocity)), AXIS)
    return velocity, energy


def make_faulty(devices):
    mesh = Mesh(np.array(devices).reshape(8), (AXIS,))
    spec = P(None, AXIS, None, None)
    velocity = jax.ShapeDtypeStruct(
        (3, N, N, N), jnp.float32, sharding=NamedSharding(mesh, spec)
    )
    run = jax.shard_map(
        functools.partial(simulate, steps=STEPS),
        mesh=mesh,
        in_specs=spec,
        out_specs=(spec, P()),
        check_vma=False,
    )
    return jax.jit(run, donate_argnums=0), (velocity,)
