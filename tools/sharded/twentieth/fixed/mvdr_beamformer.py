# mypy: ignore-errors
"""Clean. The spectra stay divided by windows, which come out even, and only the small covariances are summed.

Minimum-variance beamformer for an hour of recordings of a 16-microphone array. The windows are transformed,
the noise covariance is averaged with a mask, and the weights are applied to all windows.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

MICROPHONES, WINDOW, HOP_RATE, SECONDS = 16, 64, 250, 4096
FRAMES = HOP_RATE * SECONDS // 2
BINS = WINDOW // 2 + 1


def fourier(window):
    """Real and imaginary part of the windowed transform, as a matrix product."""
    n, k = np.arange(window)[:, None], np.arange(window // 2 + 1)[None, :]
    taper = np.hanning(window)[:, None]
    angle = 2 * np.pi * n * k / window
    return np.stack([taper * np.cos(angle), -taper * np.sin(angle)]).astype(np.float32)


def times(a, b, pattern):
    """Complex product of pairs (real, imaginary), the left one conjugated."""
    real = jnp.einsum(pattern, a[0], b[0]) + jnp.einsum(pattern, a[1], b[1])
    imag = jnp.einsum(pattern, a[0], b[1]) - jnp.einsum(pattern, a[1], b[0])
    return real, imag


def as_real_matrix(re, im):
    """A complex matrix as a real one of twice the size."""
    return jnp.concatenate([jnp.concatenate([re, -im], -1), jnp.concatenate([im, re], -1)], -2)


def mvdr_weights(covariance, steering):
    re, im = covariance
    level = 1e-3 * jnp.trace(re, axis1=-2, axis2=-1)[:, None, None] / MICROPHONES
    big = as_real_matrix(re + level * jnp.eye(MICROPHONES), im)
    rhs = jnp.concatenate([steering[0], steering[1]], axis=-1)
    solution = jnp.linalg.solve(big, rhs[..., None])[..., 0]
    w = solution[:, :MICROPHONES], solution[:, MICROPHONES:]
    gain = jnp.sum(w[0] * steering[0] + w[1] * steering[1], axis=-1, keepdims=True)
    return w[0] / gain, w[1] / gain


class Beamformer:
    frames_spec = P("chips")  # windows as they are recorded: (frames, microphones, samples)
    recorded_spec = P(None, None, "chips")  # the same after the transform
    spectrum_spec = P(None, None, "chips")  # (bins, microphones, frames)
    output_spec = P(None, "chips")

    def __init__(self, mesh):
        self.mesh = mesh

    def on(self, x, spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec))

    def spectrum(self, windows):
        basis = jnp.asarray(fourier(WINDOW))
        parts = (jnp.einsum("fms,sk->kmf", windows, basis[i]) for i in (0, 1))
        parts = (self.on(part, self.recorded_spec) for part in parts)
        return tuple(self.on(part, self.spectrum_spec) for part in parts)

    def __call__(self, windows, noise_mask, steering):
        spectrum = self.spectrum(windows)
        loud = jnp.sqrt(jnp.mean(spectrum[0] ** 2 + spectrum[1] ** 2, axis=1, keepdims=True)) + 1e-6
        white = tuple(self.on(part / loud, self.spectrum_spec) for part in spectrum)
        weighted = tuple(part * noise_mask[None, None, :] for part in white)
        covariance = times(weighted, white, "kmf,knf->kmn")
        covariance = tuple(part / jnp.maximum(noise_mask.sum(), 1.0) for part in covariance)
        weights = mvdr_weights(covariance, steering)
        beam = times(weights, spectrum, "km,kmf->kf")
        beam = tuple(self.on(part, self.output_spec) for part in beam)
        power = 10.0 * jnp.log10(beam[0] ** 2 + beam[1] ** 2 + 1e-9)
        return beam, power.mean(axis=-1)


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("chips",))
    former = Beamformer(mesh)
    over_frames = NamedSharding(mesh, former.frames_spec)
    everywhere = NamedSharding(mesh, P())
    windows = jax.ShapeDtypeStruct((FRAMES, MICROPHONES, WINDOW), jnp.bfloat16, sharding=over_frames)
    mask = jax.ShapeDtypeStruct((FRAMES,), jnp.float32, sharding=over_frames)
    direction = jax.ShapeDtypeStruct((BINS, MICROPHONES), jnp.float32, sharding=everywhere)
    return jax.jit(former.__call__), (windows, mask, (direction, direction))
