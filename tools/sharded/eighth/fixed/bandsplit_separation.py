# mypy: ignore-errors
"""Fault: padding. The five frequency bands are split over four chips, so that each chip holds two bands' worth of
features and three of the eight places are padding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TARGET = "tpu-v5e:2x2"

BANDS = ("sub", "bass", "low_mid", "high_mid", "air")
BINS_PER_BAND, WIDTH, STACKS = 128, 256, 4
BATCH, FRAMES = 16, 512
CHIPS = "chips"


def features_sharding(mesh):
    """(band, song, frame, feature)"""
    return NamedSharding(mesh, P(None, CHIPS, None, None))


def band_mix(x, w):
    """Lets the bands talk: a small dense layer over the band axis."""
    return jnp.einsum("abtf,ac->cbtf", x, w)


def temporal(x, w):
    """Gated causal moving filter followed by a dense layer per band."""
    past = jnp.pad(x, ((0, 0), (0, 0), (3, 0), (0, 0)))
    mixed = sum(past[:, :, i : i + x.shape[2]] * w["taps"][i] for i in range(4))
    gate = jax.nn.sigmoid(jnp.einsum("abtf,fg->abtg", x, w["gate"]))
    return jnp.einsum("abtf,fg->abtg", mixed * gate, w["out"])


def separate(params, spectrum, pin):
    """Magnitude spectrogram (song, frame, bin) -> mask of the same shape."""
    songs, frames, _ = spectrum.shape
    x = spectrum.reshape(songs, frames, len(BANDS), BINS_PER_BAND)
    x = pin(jnp.einsum("btaf,fg->abtg", x, params["inp"]))

    def stack(x, w):
        x = pin(x + temporal(x, w))
        x = pin(x + band_mix(x, w["bands"]))
        return x, None

    x, _ = jax.lax.scan(stack, x, params["stacks"])
    mask = jax.nn.sigmoid(pin(jnp.einsum("abtg,gf->abtf", x, params["mask"])))
    return jnp.einsum("abtf->btaf", mask).reshape(spectrum.shape)


def make_fixed(devices):
    mesh = Mesh(np.array(devices), (CHIPS,))
    pin = functools.partial(jax.lax.with_sharding_constraint, shardings=features_sharding(mesh))
    whole = NamedSharding(mesh, P())
    songs = NamedSharding(mesh, P(CHIPS, None, None))

    def loss_fn(params, mix, target):
        mask = separate(params, mix, pin)
        return jnp.mean(jnp.abs(mask * mix - target))

    def step(params, mix, target):
        loss, grads = jax.value_and_grad(loss_fn)(params, mix, target)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), loss

    def w(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=whole)

    params = {
        "inp": w(BINS_PER_BAND, WIDTH),
        "stacks": {
            "taps": w(STACKS, 4, WIDTH),
            "gate": w(STACKS, WIDTH, WIDTH),
            "out": w(STACKS, WIDTH, WIDTH),
            "bands": w(STACKS, len(BANDS), len(BANDS)),
        },
        "mask": w(WIDTH, BINS_PER_BAND),
    }
    audio = jax.ShapeDtypeStruct((BATCH, FRAMES, len(BANDS) * BINS_PER_BAND), jnp.float32, sharding=songs)
    return jax.jit(step, donate_argnums=0, out_shardings=(whole, whole)), (params, audio, audio)
