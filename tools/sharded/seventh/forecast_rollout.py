# mypy: ignore-errors
"""Fault: stack. The frames that the autoregressive rollout stacks are asked for split over the batch only, so the stacked
forecast is whole along latitude although the model runs with latitude bands split over chips."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

STEPS, BATCH, LAT, LON, CHANNELS, LATENT = 24, 4, 256, 512, 32, 128
FIELD_NAMES = ("z500", "t850", "u10", "v10", "t2m", "msl", "q700", "tp")


class Layouts:
    def __init__(self, mesh):
        self.field = NamedSharding(mesh, P("batch", "lat", None, None))
        self.weights = NamedSharding(mesh, P())
        self.mesh = mesh

    def over_time(self, *spec):
        return NamedSharding(self.mesh, P(None, *spec))


def conv(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def core(params, x):
    h = jax.nn.gelu(conv(x, params["encode"]))
    for w in params["process"]:
        h = h + jax.nn.gelu(conv(h, w))
    return x + 0.1 * conv(h, params["decode"])


def spherical_weights():
    lat = (jnp.arange(LAT) + 0.5) / LAT * jnp.pi - jnp.pi / 2
    w = jnp.cos(lat)
    return (w / w.mean())[None, :, None, None]


def forecast(params, analysis, climatology, layouts):
    def advance(state, lead):
        season = jnp.cos(2 * jnp.pi * lead / 1460.0).astype(state.dtype)
        state = core(params, state) + 0.01 * season * climatology
        state = lax.with_sharding_constraint(state, layouts.field)
        return state, state.astype(jnp.bfloat16)

    final, frames = lax.scan(advance, analysis, jnp.arange(STEPS, dtype=jnp.float32))
    area = spherical_weights()
    mean = jnp.mean(frames.astype(jnp.float32) * area, axis=(2, 3))
    energy = jnp.sum(jnp.square(final) * area, axis=(1, 2, 3))
    return frames, {"global_mean": mean, "energy": energy}


def structs(layouts):
    f32 = jnp.float32
    weight = lambda *s: jax.ShapeDtypeStruct(s, f32, sharding=layouts.weights)
    params = {
        "encode": weight(3, 3, CHANNELS, LATENT),
        "process": [weight(3, 3, LATENT, LATENT) for _ in range(2)],
        "decode": weight(3, 3, LATENT, CHANNELS),
    }
    analysis = jax.ShapeDtypeStruct((BATCH, LAT, LON, CHANNELS), f32, sharding=layouts.field)
    climatology = jax.ShapeDtypeStruct((BATCH, LAT, LON, CHANNELS), f32, sharding=layouts.field)
    return params, analysis, climatology


def _program(devices, *frame_axes):
    mesh = Mesh(np.array(devices).reshape(4, 4), ("batch", "lat"))
    layouts = Layouts(mesh)

    def entry(params, analysis, climatology):
        return forecast(params, analysis, climatology, layouts)

    return jax.jit(entry, out_shardings=(layouts.over_time(*frame_axes), layouts.weights)), structs(layouts)


def make_faulty(devices):
    return _program(devices, "batch", None)  # FAULT


def make_fixed(devices):
    return _program(devices, "batch", "lat")
