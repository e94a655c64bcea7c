"""Matrix products: tiled with an accumulator, fused with an activation, quantized, transposed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tools.programs.parts import halves

if TYPE_CHECKING:
    from collections.abc import Callable


def matmul_call(
    m: int, n: int, k: int, bm: int, bn: int, bk: int, limit: int | None = None
) -> Callable[..., Any]:
    """A product with an accumulator in f32, tiled in all three dimensions."""
    steps = k // bk

    def kernel(x: Any, y: Any, out: Any, total: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            total[...] = jnp.zeros_like(total)

        total[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == steps - 1)
        def _() -> None:
            out[...] = total[...].astype(out.dtype)

    return pl.pallas_call(
        kernel,
        out_shape=halves(m, n),
        grid=(m // bm, n // bn, steps),
        in_specs=[
            pl.BlockSpec((bm, bk), lambda i, j, s: (i, s)),
            pl.BlockSpec((bk, bn), lambda i, j, s: (s, j)),
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, s: (i, j)),
        scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=limit
        ),
        name="tiled_matmul",
    )


def matmul(
    block_m: int = 512, block_n: int = 512, block_k: int = 512, limit: int | None = None
) -> Any:
    call = matmul_call(4096, 4096, 4096, block_m, block_n, block_k, limit)
    square = halves(4096, 4096)
    return call, (square, square)
