"""Matrix products: tiled with an accumulator, fused with an activation, quantized, transposed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tools.programs.parts import floats, halves, numbers

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


def _epilogue(
    shapes: tuple[int, int, int],
    blocks: tuple[int, int, int],
    finish: Callable[..., Any],
    extra: bool,
) -> Callable[..., Any]:
    """A tiled product whose last step applies a function, with a bias of one row if asked."""
    (m, n, k), (bm, bn, bk) = shapes, blocks
    steps = k // bk

    def kernel(x: Any, y: Any, *rest: Any) -> None:
        out, total = rest[-2:]

        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            total[...] = jnp.zeros_like(total)

        total[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == steps - 1)
        def _() -> None:
            made = total[...] + rest[0][...] if extra else total[...]
            out[...] = finish(made).astype(out.dtype)

    bias = [pl.BlockSpec((1, bn), lambda i, j, s: (0, j))] if extra else []
    return pl.pallas_call(
        kernel,
        out_shape=halves(m, n),
        grid=(m // bm, n // bn, steps),
        in_specs=[
            pl.BlockSpec((bm, bk), lambda i, j, s: (i, s)),
            pl.BlockSpec((bk, bn), lambda i, j, s: (s, j)),
            *bias,
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, s: (i, j)),
        scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)],
    )


def gelu_matmul(block_m: int = 512, block_n: int = 512, block_k: int = 512) -> Any:
    call = _epilogue((4096, 4096, 4096), (block_m, block_n, block_k), jax.nn.gelu, extra=True)
    return call, (halves(4096, 4096), halves(4096, 4096), floats(1, 4096))


def silu_matmul(block_m: int = 256, block_n: int = 512) -> Any:
    """The whole inner dimension in one block."""
    call = _epilogue((4096, 4096, 2048), (block_m, block_n, 2048), jax.nn.silu, extra=False)
    return call, (halves(4096, 2048), halves(2048, 4096))


def plain_matmul(block_m: int = 512, block_n: int = 512) -> Any:
    """Without an accumulator: the product of whole rows and columns."""

    def kernel(x: Any, y: Any, out: Any) -> None:
        out[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32).astype(out.dtype)

    call = pl.pallas_call(
        kernel,
        out_shape=halves(4096, 4096),
        grid=(4096 // block_m, 4096 // block_n),
        in_specs=[
            pl.BlockSpec((block_m, 1024), lambda i, j: (i, 0)),
            pl.BlockSpec((1024, block_n), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j: (i, j)),
    )
    return call, (halves(4096, 1024), halves(1024, 4096))


def float_matmul(block: int = 256) -> Any:
    """In f32, with the right operand transposed."""

    def kernel(x: Any, y: Any, out: Any) -> None:
        made = jax.lax.dot_general(
            x[...], y[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )

        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            out[...] = jnp.zeros_like(out)

        out[...] += made

    call = pl.pallas_call(
        kernel,
        out_shape=floats(2048, 2048),
        grid=(2048 // block, 2048 // block, 2048 // block),
        in_specs=[
            pl.BlockSpec((block, block), lambda i, j, s: (i, s)),
            pl.BlockSpec((block, block), lambda i, j, s: (j, s)),
        ],
        out_specs=pl.BlockSpec((block, block), lambda i, j, s: (i, j)),
    )
    return call, (floats(2048, 2048), floats(2048, 2048))


def int8_matmul(block_m: int = 512, block_n: int = 512, block_k: int = 1024) -> Any:
    """Weights of eight bits with a scale for each column."""

    def kernel(x: Any, w: Any, scale: Any, out: Any, total: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            total[...] = jnp.zeros_like(total)

        wide = w[...].astype(jnp.float32).astype(jnp.bfloat16)
        total[...] += jnp.dot(x[...], wide, preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == 4096 // block_k - 1)
        def _() -> None:
            out[...] = (total[...] * scale[...]).astype(out.dtype)

    call = pl.pallas_call(
        kernel,
        out_shape=halves(2048, 4096),
        grid=(2048 // block_m, 4096 // block_n, 4096 // block_k),
        in_specs=[
            pl.BlockSpec((block_m, block_k), lambda i, j, s: (i, s)),
            pl.BlockSpec((block_k, block_n), lambda i, j, s: (s, j)),
            pl.BlockSpec((1, block_n), lambda i, j, s: (0, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j, s: (i, j)),
        scratch_shapes=[pltpu.VMEM((block_m, block_n), jnp.float32)],
    )
    return call, (halves(2048, 4096), floats(4096, 4096, dtype="int8"), floats(1, 4096))


def batched_matmul(block_m: int = 512, block_n: int = 512) -> Any:
    """A grid over the batch, whose dimension is squeezed out of the blocks."""

    def kernel(x: Any, y: Any, out: Any) -> None:
        out[...] = jnp.dot(x[...], y[...], preferred_element_type=jnp.float32).astype(out.dtype)

    call = pl.pallas_call(
        kernel,
        out_shape=halves(8, 2048, 2048),
        grid=(8, 2048 // block_m, 2048 // block_n),
        in_specs=[
            pl.BlockSpec((None, block_m, 512), lambda b, i, j: (b, i, 0)),
            pl.BlockSpec((None, 512, block_n), lambda b, i, j: (b, 0, j)),
        ],
        out_specs=pl.BlockSpec((None, block_m, block_n), lambda b, i, j: (b, i, j)),
    )
    return call, (halves(8, 2048, 512), halves(8, 512, 2048))


def swiglu(block_m: int = 256, block_f: int = 512) -> Any:
    """Gate and up projections in one kernel, two accumulators."""

    def kernel(x: Any, gate: Any, up: Any, out: Any) -> None:
        left = jnp.dot(x[...], gate[...], preferred_element_type=jnp.float32)
        right = jnp.dot(x[...], up[...], preferred_element_type=jnp.float32)
        out[...] = (jax.nn.silu(left) * right).astype(out.dtype)

    weights = pl.BlockSpec((2048, block_f), lambda i, j: (0, j))
    call = pl.pallas_call(
        kernel,
        out_shape=halves(4096, 4096),
        grid=(4096 // block_m, 4096 // block_f),
        in_specs=[pl.BlockSpec((block_m, 2048), lambda i, j: (i, 0)), weights, weights],
        out_specs=pl.BlockSpec((block_m, block_f), lambda i, j: (i, j)),
    )
    return call, (halves(4096, 2048), halves(2048, 4096), halves(2048, 4096))


def grouped_matmul(block_m: int = 256, block_n: int = 512, experts: int = 8) -> Any:
    """The expert of each block of rows comes from a prefetched table."""

    def kernel(table: Any, x: Any, w: Any, out: Any) -> None:
        del table
        out[...] = jnp.dot(x[...], w[...], preferred_element_type=jnp.float32).astype(out.dtype)

    call = pl.pallas_call(
        kernel,
        out_shape=halves(4096, 2048),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(4096 // block_m, 2048 // block_n),
            in_specs=[
                pl.BlockSpec((block_m, 1024), lambda i, j, table: (i, 0)),
                pl.BlockSpec((None, 1024, block_n), lambda i, j, table: (table[i], 0, j)),
            ],
            out_specs=pl.BlockSpec((block_m, block_n), lambda i, j, table: (i, j)),
        ),
    )
    return call, (numbers(4096 // block_m), halves(4096, 1024), halves(experts, 1024, 2048))
