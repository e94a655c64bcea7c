"""Distances of all pairs of rows: small if the differences are never written to memory."""

import compiling
import jax
import jax.numpy as jnp
from jax import lax

config = compiling.options(__doc__, barrier=False, rows=512, others=512, width=128)


def distances(x, y):
    difference = x[:, None, :] - y[None, :, :]
    if config.barrier:
        difference = lax.optimization_barrier(difference)
    return jnp.sqrt((difference * difference).sum(-1))


sharding = compiling.single(config.platform)
shapes = ((config.rows, config.width), (config.others, config.width))
arguments = [jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding) for shape in shapes]
compiling.compile_and_report(jax.jit(distances).lower(*arguments), "distances")
