# mypy: ignore-errors
"""Clean. Bands and plane waves change places in one all_to_all, there and back.

Plane-wave density functional theory: blocked steepest descent on the Kohn-Sham orbitals. The Hamiltonian is
applied with the bands spread over the devices (each FFT is local), the orthonormalisation with the plane
waves spread over them (the overlap is one small reduction).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

BANDS, GRID = 128, 48
CELL = 18.0  # bohr
STEP, MIXING, ITERATIONS = 0.08, 0.3, 4


def kinetic_energies():
    k = 2 * np.pi * np.fft.fftfreq(GRID, CELL / GRID)
    kx, ky, kz = np.meshgrid(k, k, k, indexing="ij")
    return 0.5 * (kx**2 + ky**2 + kz**2).reshape(-1).astype(np.float32)


def bands_to_waves(psi):
    """(bands / n, waves) on each device -> (bands, waves / n)."""
    return jax.lax.all_to_all(psi, "rank", split_axis=1, concat_axis=0, tiled=True)


def waves_to_bands(psi):
    """(bands, waves / n) on each device -> (bands / n, waves)."""
    return jax.lax.all_to_all(psi, "rank", split_axis=0, concat_axis=1, tiled=True)


def to_real(psi):
    return jnp.fft.ifftn(psi.reshape(-1, GRID, GRID, GRID), axes=(1, 2, 3), norm="ortho")


def to_waves(psi):
    return jnp.fft.fftn(psi, axes=(1, 2, 3), norm="ortho").reshape(psi.shape[0], -1)


def apply_hamiltonian(psi, potential, kinetic):
    return psi * kinetic + to_waves(to_real(psi) * potential)


def inverse_root(overlap, rounds=12):
    """Newton-Schulz iteration for overlap ** -1/2, the matrix is close to one already."""
    eye = jnp.eye(overlap.shape[0], dtype=overlap.dtype)
    scale = jnp.trace(overlap).real

    def body(_, state):
        y, z = state
        t = 0.5 * (3.0 * eye - z @ y)
        return y @ t, t @ z

    _, z = jax.lax.fori_loop(0, rounds, body, (overlap / scale, eye))
    return z / jnp.sqrt(scale)


def orthonormalise(psi):
    """psi with its plane waves spread over the devices."""
    overlap = jax.lax.psum(psi @ psi.conj().T, "rank")
    return inverse_root(overlap).conj() @ psi


def exchange(density):
    return -((3.0 / jnp.pi) ** (1.0 / 3.0)) * jnp.cbrt(jnp.maximum(density, 1e-9))


def scf(psi, ionic, kinetic):
    """One call runs ITERATIONS descent steps; psi arrives and leaves split by band."""

    def density_of(psi):
        return 2.0 * jax.lax.psum(jnp.sum(jnp.abs(to_real(psi)) ** 2, axis=0), "rank") * (GRID / CELL) ** 3

    def body(_, state):
        psi, density = state
        hpsi = apply_hamiltonian(psi, ionic + exchange(density), kinetic)
        energy = jnp.sum(psi.conj() * hpsi, axis=1, keepdims=True).real
        psi = psi - STEP * (hpsi - energy * psi) / (1.0 + kinetic)
        psi = waves_to_bands(orthonormalise(bands_to_waves(psi)))
        return psi, (1.0 - MIXING) * density + MIXING * density_of(psi)

    return jax.lax.fori_loop(0, ITERATIONS, body, (psi, density_of(psi)))


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("rank",))
    by_band, whole = NamedSharding(mesh, P("rank")), NamedSharding(mesh, P())
    mapped = jax.shard_map(
        functools.partial(scf, kinetic=jnp.asarray(kinetic_energies())),
        mesh=mesh,
        in_specs=(P("rank"), P()),
        out_specs=(P("rank"), P()),
    )
    psi = jax.ShapeDtypeStruct((BANDS, GRID**3), jnp.complex64, sharding=by_band)
    ionic = jax.ShapeDtypeStruct((GRID, GRID, GRID), jnp.float32, sharding=whole)
    return jax.jit(mapped, donate_argnums=0), (psi, ionic)
