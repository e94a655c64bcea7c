"""Programs whose results are wanted in another layout than the device computes in."""

import compiling
import jax
import jax.numpy as jnp
from jax.experimental.layout import Format, Layout

config = compiling.options(__doc__, case="conv", batch=128, matched=False)
place = compiling.Mesh(config.platform, 1)


def conv(image, kernel):
    axes = ("NCHW", "OIHW", "NCHW")
    return jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=axes)


def keys(x, w):
    """Keys by head, as a cache has them."""
    split = (x @ w).reshape(*x.shape[:2], -1, 128)
    return jnp.swapaxes(split, 1, 2)


def form(*order):
    """A layout from major to minor."""
    return Format(Layout(order), place.one)


def array(*shape, sharding=place.one):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


n = config.batch
if config.case == "conv":
    step = jax.jit(conv, out_shardings=form(2, 3, 0, 1) if config.matched else None)
    arguments = (array(n, 128, 64, 64), array(128, 128, 3, 3))
else:
    step = jax.jit(keys, out_shardings=None if config.matched else form(0, 2, 1, 3))
    arguments = (array(n, 512, 1024), array(1024, 1024))
compiling.compile_and_report(step.lower(*arguments), config.case)
