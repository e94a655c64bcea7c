# mypy: ignore-errors
"""Clean. Semi-implicit spectral Cahn-Hilliard in three dimensions on slabs: the physical field is split
over z, the spectrum over y, and the distributed FFT goes from one to the other by all_to_all.

Only the wavenumber vectors and the short time series of the diagnostics are whole on every device.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

N = 384
BOX = 2.0 * np.pi
MOBILITY, KAPPA, DT = 1.0, 0.0025, 1.0e-3
STEPS, OUTER = 20, 8

PHYSICAL = P("slab", None, None)  # z, y, x
SPECTRAL = P(None, "slab", None)  # kz, ky, kx (kx: half spectrum)


def transpose_zy(a, forward):
    """Move the split between the first two axes."""
    split, concat = (1, 0) if forward else (0, 1)
    return lax.all_to_all(a, "slab", split_axis=split, concat_axis=concat, tiled=True)


def fft3(u):
    """Real slab field -> half spectrum, split over ky."""
    s = jnp.fft.rfft(u, axis=2)
    s = jnp.fft.fft(s, axis=1)
    s = transpose_zy(s, forward=True)
    return jnp.fft.fft(s, axis=0)


def ifft3(s):
    """Half spectrum -> real slab field, split over z."""
    s = jnp.fft.ifft(s, axis=0)
    s = transpose_zy(s, forward=False)
    s = jnp.fft.ifft(s, axis=1)
    return jnp.fft.irfft(s, n=N, axis=2)


def local_wavenumbers():
    """kz whole, ky my stretch, kx half; broadcastable against a spectral block."""
    k = jnp.asarray(np.fft.fftfreq(N, d=BOX / (2 * np.pi * N)), jnp.float32)
    n = N // lax.axis_size("slab")
    ky = lax.dynamic_slice_in_dim(k, lax.axis_index("slab") * n, n)
    kx = jnp.asarray(np.fft.rfftfreq(N, d=BOX / (2 * np.pi * N)), jnp.float32)
    return k[:, None, None], ky[None, :, None], kx[None, None, :]


def dealias(kz, ky, kx):
    cut = N / 3.0
    return (jnp.abs(kz) < cut) & (jnp.abs(ky) < cut) & (jnp.abs(kx) < cut)


def local_mean(u):
    return lax.psum(jnp.sum(u), "slab") / N**3


def free_energy(c, spectrum, k2):
    """Bulk part in physical space, gradient part by Parseval."""
    bulk = local_mean(0.25 * (c * c - 1.0) ** 2)
    power = jnp.square(spectrum.real) + jnp.square(spectrum.imag)
    kx_weight = jnp.where((jnp.arange(power.shape[2]) == 0) | (jnp.arange(power.shape[2]) == N // 2), 1.0, 2.0)
    gradient = lax.psum(jnp.sum(k2 * power * kx_weight), "slab") / float(N) ** 6
    return bulk + 0.5 * KAPPA * gradient


def advance(spectrum, _):
    """One step: explicit chemical potential of the bulk, implicit biharmonic term."""
    kz, ky, kx = local_wavenumbers()
    k2 = kz**2 + ky**2 + kx**2
    c = ifft3(spectrum)
    bulk = fft3(c * c * c - c)
    bulk = jnp.where(dealias(kz, ky, kx), bulk, 0.0)
    spectrum = (spectrum - DT * MOBILITY * k2 * bulk) / (1.0 + DT * MOBILITY * KAPPA * k2 * k2)
    return spectrum, None


def run(spectrum):
    def chunk(spectrum, _):
        spectrum, _ = lax.scan(advance, spectrum, None, length=STEPS)
        kz, ky, kx = local_wavenumbers()
        c = ifft3(spectrum)
        report = {
            "energy": free_energy(c, spectrum, kz**2 + ky**2 + kx**2),
            "mean": local_mean(c),
            "spread": local_mean(c * c),
        }
        return spectrum, report

    spectrum, history = lax.scan(chunk, spectrum, None, length=OUTER)
    return spectrum, ifft3(spectrum), history


def make_clean(devices):
    mesh = Mesh(np.asarray(devices).reshape(8), ("slab",))
    history = {"energy": P(), "mean": P(), "spread": P()}
    program = partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(SPECTRAL,),
        out_specs=(SPECTRAL, PHYSICAL, history),
        check_vma=False,
    )(run)
    spectrum = jax.ShapeDtypeStruct(
        (N, N, N // 2 + 1), jnp.complex64, sharding=NamedSharding(mesh, SPECTRAL)
    )
    return jax.jit(program, donate_argnums=0), (spectrum,)
