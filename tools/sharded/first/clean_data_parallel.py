# mypy: ignore-errors
"""Clean. Data parallel: a small convolution network, a large batch of images."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

S = jax.ShapeDtypeStruct
TARGET = "cpu"


def _convolve(x, kernel):
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def make_clean(devices, batch=256, size=32, width=32):
    mesh = Mesh(np.array(devices), ("data",))
    whole, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))

    def train_step(params, images):
        def loss(params):
            x = images
            for kernel in params:
                x = jax.nn.relu(_convolve(x, kernel))
            return jnp.mean(x**2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    kernels = [S((3, 3, 4, width), "float32", sharding=whole)]
    kernels += [S((3, 3, width, width), "float32", sharding=whole)] * 3
    images = S((batch, size, size, 4), "float32", sharding=rows)
    return jax.jit(train_step, donate_argnums=0), (kernels, images)
