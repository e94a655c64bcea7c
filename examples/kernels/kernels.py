"""Kernels whose block sizes are settings; docs/kernels.md asks hlomem which of them fit."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

SIZE = 4096


def matmul(block_m=512, block_n=512, block_k=512):
    """A tiled product with an accumulator in scratch."""

    def matmul_kernel(x, y, out, total):
        @pl.when(pl.program_id(2) == 0)
        def _():
            total[...] = jnp.zeros_like(total)

        total[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == SIZE // block_k - 1)
        def _():
            out[...] = total[...].astype(out.dtype)

    call = pl.pallas_call(
        matmul_kernel,
        out_shape=jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16),
        grid=(SIZE // block_m, SIZE // block_n, SIZE // block_k),
        in_specs=[
            pl.BlockSpec((block_m, block_k), lambda i, j, k: (i, k)),
            pl.BlockSpec((block_k, block_n), lambda i, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((block_m, block_n), jnp.float32)],
    )
    square = jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16)
    return call, (square, square)


def softmax(block=256):
    """Whole rows, which spill: what they use is more than their blocks."""

    def softmax_kernel(x, out):
        out[...] = jax.nn.softmax(x[...].astype(jnp.float32), axis=-1).astype(out.dtype)

    rows = pl.BlockSpec((block, SIZE), lambda i: (i, 0))
    array = jax.ShapeDtypeStruct((2 * SIZE, SIZE), jnp.bfloat16)
    call = pl.pallas_call(
        softmax_kernel,
        out_shape=array,
        grid=(2 * SIZE // block,),
        in_specs=[rows],
        out_specs=rows,
    )
    return call, (array,)
