# mypy: ignore-errors
"""Clean. A pseudo-spectral step of a passive scalar in a three-dimensional flow: distributed Fourier transforms on
slabs inside a shard_map, and an integrating factor for the diffusion.
"""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"
AXIS = "slab"


@dataclass(frozen=True)
class Box:
    n: int = 192
    parts: int = 8
    dt: float = 1e-3
    diffusivity: float = 1e-2

    @property
    def local(self):
        return self.n // self.parts


def swap(box, field, cut, join):
    """From slabs of `join` to slabs of `cut`."""
    return lax.all_to_all(field, AXIS, split_axis=cut, concat_axis=join, tiled=True)


def forward(box, field):
    spectrum = jnp.fft.fftn(field.astype(jnp.complex64), axes=(1, 2))
    return jnp.fft.fft(swap(box, spectrum, cut=1, join=0), axis=0)


def backward(box, spectrum):
    field = swap(box, jnp.fft.ifft(spectrum, axis=0), cut=0, join=1)
    return jnp.fft.ifftn(field, axes=(1, 2)).real


def wavenumbers(box):
    k = jnp.fft.fftfreq(box.n, 1.0 / box.n).astype(jnp.float32)
    mine = lax.dynamic_slice_in_dim(k, lax.axis_index(AXIS) * box.local, box.local)
    return k[:, None, None], mine[None, :, None], k[None, None, :]


def advection(box, spectrum, velocity):
    total = 0.0
    for component, k in zip(velocity, wavenumbers(box)):
        total = total - component * backward(box, 1j * k * spectrum)
    return total


def dealias(box, spectrum):
    keep = 1.0
    for k in wavenumbers(box):
        keep = keep * (jnp.abs(k) < box.n / 3.0)
    return spectrum * keep


def make_step(box):
    def step(scalar, velocity):
        spectrum = forward(box, scalar)
        kx, ky, kz = wavenumbers(box)
        decay = jnp.exp(-box.diffusivity * box.dt * (kx**2 + ky**2 + kz**2))
        middle = spectrum + 0.5 * box.dt * dealias(box, forward(box, advection(box, spectrum, velocity)))
        rate = dealias(box, forward(box, advection(box, middle, velocity)))
        spectrum = decay * (spectrum + box.dt * rate)
        variance = lax.psum(jnp.sum(jnp.abs(spectrum) ** 2), AXIS)
        return backward(box, spectrum), variance

    return step


def make_fixed(devices):
    mesh = Mesh(np.asarray(devices).reshape(8), (AXIS,))
    box = Box()
    step = jax.shard_map(
        make_step(box),
        mesh=mesh,
        in_specs=(P(AXIS), P(None, AXIS)),
        out_specs=(P(AXIS), P()),
    )
    scalar = jax.ShapeDtypeStruct((box.n,) * 3, jnp.float32, sharding=NamedSharding(mesh, P(AXIS)))
    velocity = jax.ShapeDtypeStruct((3, *(box.n,) * 3), jnp.float32, sharding=NamedSharding(mesh, P(None, AXIS)))
    return jax.jit(step, donate_argnums=0), (scalar, velocity)
