# mypy: ignore-errors
"""Clean. A data pipeline for recordings of whales: hydrophone samples become per-channel normalised mel features with
masked stripes for augmentation, a piece of the recordings at a time, the recordings split over the chips."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:2x2"


@dataclass(frozen=True)
class Features:
    pieces: int = 8
    recordings: int = 64
    samples: int = 163840
    window: int = 512
    hop: int = 256
    mels: int = 96
    low: float = 20.0
    high: float = 4000.0
    sampling: float = 8000.0
    stripes: int = 2

    @property
    def frames(self):
        return self.samples // self.hop - 1


def mel(frequency):
    return 2595.0 * np.log10(1.0 + frequency / 700.0)


def filter_bank(f):
    edges = 700.0 * (10.0 ** (np.linspace(mel(f.low), mel(f.high), f.mels + 2) / 2595.0) - 1.0)
    bins = np.linspace(0.0, f.sampling / 2.0, f.window // 2 + 1)[:, None]
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return np.maximum(0.0, np.minimum(rising, falling)).astype(np.float32)


def fourier_matrices(f):
    angles = 2.0 * np.pi * np.outer(np.arange(f.window), np.arange(f.window // 2 + 1)) / f.window
    taper = np.hanning(f.window)[:, None]
    return (taper * np.cos(angles)).astype(np.float32), (taper * np.sin(angles)).astype(np.float32)


class Pipeline:
    def __init__(self, features, mesh):
        self.features = features
        self.audio = NamedSharding(mesh, P(None, ("host", "chip"), None))
        self.piece = NamedSharding(mesh, P(("host", "chip")))
        self.ready = NamedSharding(mesh, P(None, ("host", "chip"), None, None))
        self.small = NamedSharding(mesh, P())

    def frames(self, samples):
        f = self.features
        blocks = samples.reshape(samples.shape[0], -1, f.hop)
        return jnp.concatenate([blocks[:, :-1], blocks[:, 1:]], axis=-1)

    def spectrum(self, samples):
        cosine, sine = fourier_matrices(self.features)
        frames = self.frames(samples)
        power = (frames @ cosine) ** 2 + (frames @ sine) ** 2
        return jnp.log(power @ filter_bank(self.features) + 1e-6)

    def stripes(self, key, count, size):
        start, width = jax.random.split(key)
        shape = (count, self.features.stripes, 1)
        first = jax.random.randint(start, shape, 0, size)
        last = first + jax.random.randint(width, shape, 1, size // 8)
        at = jnp.arange(size)
        return ~jnp.any((at >= first) & (at < last), axis=1)

    def augment(self, key, mels):
        over_time, over_mel = jax.random.split(key)
        keep_time = self.stripes(over_time, mels.shape[0], mels.shape[1])
        keep_mel = self.stripes(over_mel, mels.shape[0], mels.shape[2])
        return mels * keep_time[:, :, None] * keep_mel[:, None, :]

    def one_piece(self, given):
        key, samples = given
        samples = jax.lax.with_sharding_constraint(samples, self.piece).astype(jnp.float32) / 32768.0
        mels = self.spectrum(samples)
        mean = mels.mean(axis=1, keepdims=True)
        deviation = mels.std(axis=1, keepdims=True)
        mels = self.augment(key, (mels - mean) / (deviation + 1e-3))
        return jax.lax.with_sharding_constraint(mels.astype(jnp.bfloat16), self.piece)

    def __call__(self, seed, audio):
        keys = jax.random.split(jax.random.key(seed), self.features.pieces)
        return jax.lax.map(self.one_piece, (keys, audio))


def make_clean(devices):
    features = Features()
    mesh = Mesh(np.asarray(devices).reshape(2, 2), ("host", "chip"))
    pipeline = Pipeline(features, mesh)
    shape = (features.pieces, features.recordings, features.samples)
    arguments = (
        jax.ShapeDtypeStruct((), jnp.uint32, sharding=pipeline.small),
        jax.ShapeDtypeStruct(shape, jnp.int16, sharding=pipeline.audio),
    )
    return jax.jit(pipeline, out_shardings=pipeline.ready), arguments
