"""Programs whose arguments or results come in another layout than the device computes in."""

import compiling
import jax
import jax.numpy as jnp
from jax.experimental.layout import Format, Layout

config = compiling.options(__doc__, case="conv", batch=128, matched=False)
place = compiling.Mesh(config.platform, 1)


def conv(image, kernel):
    axes = ("NCHW", "OIHW", "NCHW")
    return jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=axes)


def solve(a, b):
    return jnp.sort(jnp.swapaxes(a, 0, 1), axis=-1) @ b


def gather(table, rows):
    return jnp.cumsum(jnp.swapaxes(table, 0, 1), axis=1)[rows] * 2


def array(*shape, dtype=jnp.float32, order=None):
    form = Format(Layout(order), place.one) if order and config.matched else place.one
    return jax.ShapeDtypeStruct(shape, dtype, sharding=form)


n = config.batch
result = None
if config.case == "conv":
    arguments = (array(n, 128, 64, 64), array(128, 128, 3, 3))
    result = Format(Layout((2, 3, 0, 1)), place.one) if config.matched else None
elif config.case == "solve":
    arguments = (array(4096, 8 * n, order=(1, 0)), array(4096, 16))
else:
    arguments = (array(4096, 8 * n, order=(1, 0)), array(64, dtype=jnp.int32))
function = {"conv": conv, "solve": solve, "gather": gather}[config.case]
step = jax.jit(function, out_shardings=result)
compiling.compile_and_report(step.lower(*arguments), config.case)
