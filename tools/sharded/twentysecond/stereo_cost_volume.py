# mypy: ignore-errors
"""Fault: padding. The cost volume is split by disparity, of which there are 33, over 16 chips: every chip holds
three slots, 48 in all. The pairs of images, 16 per batch, would divide evenly.

Stereo depth inference: census matching costs of two views, aggregated by learned separable filters over the
image, and a soft argmin over the disparities.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "tpu-v5e:4x4"

PAIRS, ROWS, COLUMNS = 16, 384, 768
MAX_DISPARITY = 32
ROUNDS, TAPS = 4, 5

# disparity, pair, row, column
VOLUME = P("chips", None, None, None)  # FAULT
IMAGES = P("chips", None, None)


def census(image):
    """A bit per neighbour in the 5 x 5 window: is it darker than the centre."""
    code = jnp.zeros(image.shape, jnp.int32)
    for dy in range(-2, 3):
        for dx in range(-2, 3):
            if (dy, dx) != (0, 0):
                darker = jnp.roll(image, (dy, dx), (1, 2)) < image
                code = (code << 1) | darker.astype(jnp.int32)
    return code


def filtered(volume, taps, axis):
    half = TAPS // 2
    return sum(taps[i] * jnp.roll(volume, i - half, axis) for i in range(TAPS))


def make_matcher(mesh):
    def pin(volume):
        return jax.lax.with_sharding_constraint(volume, NamedSharding(mesh, VOLUME))  # FAULT

    def cost_volume(left, right):
        column = jnp.arange(COLUMNS)

        def at(shift):
            differing = jax.lax.population_count(left ^ jnp.roll(right, shift, axis=2))
            return jnp.where(column >= shift, differing.astype(jnp.float32) / 24.0, 1.0)

        return pin(jax.vmap(at)(jnp.arange(MAX_DISPARITY + 1)))

    def aggregate(volume, filters):
        def one(volume, taps):
            smooth = filtered(filtered(volume, taps[0], 3), taps[1], 2)
            return pin(volume + jnp.tanh(smooth)), None

        return jax.lax.scan(one, volume, filters)[0]

    def match(filters, temperature, left, right):
        volume = aggregate(cost_volume(census(left), census(right)), filters)
        chance = jax.nn.softmax(-temperature * volume, axis=0)
        values = jnp.arange(MAX_DISPARITY + 1, dtype=jnp.float32)
        expected = jnp.sum(values[:, None, None, None] * chance, axis=0)
        return expected, jnp.max(chance, axis=0)

    return match


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("chips",))
    whole = NamedSharding(mesh, P())
    images = NamedSharding(mesh, IMAGES)
    filters = jax.ShapeDtypeStruct((ROUNDS, 2, TAPS), jnp.float32, sharding=whole)
    temperature = jax.ShapeDtypeStruct((), jnp.float32, sharding=whole)
    view = jax.ShapeDtypeStruct((PAIRS, ROWS, COLUMNS), jnp.bfloat16, sharding=images)
    fn = jax.jit(make_matcher(mesh), out_shardings=(images, images))
    return fn, (filters, temperature, view, view)
