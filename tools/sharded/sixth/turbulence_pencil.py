# mypy: ignore-errors
"""Fault: reshard. Between the transforms along z and along x the solver puts the field together on every device and cuts it anew, where
a transposition (all-to-all) between the two slab layouts would do; each whole complex field is eight times a slab."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

N = 192
NU, DT = 1e-3, 2e-3

SLAB_X = P("slab", None, None)
SLAB_Y = P(None, "slab", None)


class SlabFFT:
    """3-d FFT on slabs. Physical fields are split along x, spectra along y."""

    def __init__(self, mesh, transpose):
        self.mesh = mesh
        self._transpose = transpose

    def pin(self, a, spec):
        return jax.lax.with_sharding_constraint(a, NamedSharding(self.mesh, spec))

    def local(self, f, spec):
        """Transforms along unsplit axes need no communication."""
        return jax.shard_map(f, mesh=self.mesh, in_specs=spec, out_specs=spec)

    def forward(self, a):
        h = self.local(lambda b: jnp.fft.fft2(b.astype(jnp.complex64), axes=(1, 2)), SLAB_X)(a)
        h = self._transpose(self, h, SLAB_Y)
        return self.local(lambda b: jnp.fft.fft(b, axis=0), SLAB_Y)(h)

    def inverse(self, h):
        h = self.local(lambda b: jnp.fft.ifft(b, axis=0), SLAB_Y)(h)
        h = self._transpose(self, h, SLAB_X)
        return self.local(lambda b: jnp.fft.ifft2(b, axes=(1, 2)).real, SLAB_X)(h)


def transpose_direct(fft, h, to):
    return fft.pin(h, to)


def transpose_sync(fft, h, to):
    h = fft.pin(h, P(None, None, None))  # FAULT
    return fft.pin(h, to)


def wavenumbers():
    k = jnp.fft.fftfreq(N, 1.0 / N)
    return k[:, None, None], k[None, :, None], k[None, None, :]


def dealias(kx, ky, kz):
    cut = N // 3
    return (abs(kx) < cut) & (abs(ky) < cut) & (abs(kz) < cut)


def rhs(fft, theta_hat, vel):
    kx, ky, kz = wavenumbers()
    mask = dealias(kx, ky, kz)

    def advect(acc, pair):
        k, u = pair
        grad = fft.inverse(1j * k * theta_hat)
        return acc - u * grad

    adv = functools.reduce(advect, zip((kx, ky, kz), vel), jnp.zeros_like(vel[0]))
    k2 = kx**2 + ky**2 + kz**2
    return jnp.where(mask, fft.forward(adv), 0) - NU * k2 * theta_hat


def make_step(fft, n_sub):
    def substep(theta_hat, vel):
        k1 = rhs(fft, theta_hat, vel)
        k2 = rhs(fft, theta_hat + 0.5 * DT * k1, vel)
        return theta_hat + DT * k2

    def step(theta, vel):
        theta_hat = fft.forward(theta)
        theta_hat, _ = jax.lax.scan(lambda c, _: (substep(c, vel), None), theta_hat, length=n_sub)
        out = fft.inverse(theta_hat)
        return out, jnp.mean(out**2)

    return step


def build(devices, transpose):
    mesh = Mesh(np.array(devices), ("slab",))
    fft = SlabFFT(mesh, transpose)
    field = jax.ShapeDtypeStruct((N, N, N), jnp.float32, sharding=NamedSharding(mesh, SLAB_X))
    fn = jax.jit(make_step(fft, n_sub=4), donate_argnums=0,
                 out_shardings=(NamedSharding(mesh, SLAB_X), NamedSharding(mesh, P())))
    return fn, (field, (field, field, field))


def make_faulty(devices):
    return build(devices, transpose_sync)


def make_fixed(devices):
    return build(devices, transpose_direct)
