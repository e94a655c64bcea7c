"""Attention: whole rows of scores, online softmax, one query over pages, a sliding window."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tools.programs.parts import floats, halves, numbers

_HEADS, _LENGTH, _DIM = 8, 4096, 128


def rows_of_scores(block_q: int = 256, length: int = 2048) -> Any:
    """All keys in VMEM, and all scores of a block of queries."""

    def kernel(q: Any, k: Any, v: Any, out: Any) -> None:
        scores = jax.lax.dot_general(
            q[...], k[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        weights = jax.nn.softmax(scores * _DIM**-0.5, axis=-1).astype(v.dtype)
        out[...] = jnp.dot(weights, v[...], preferred_element_type=jnp.float32).astype(out.dtype)

    queries = pl.BlockSpec((None, block_q, _DIM), lambda h, i: (h, i, 0))
    keys = pl.BlockSpec((None, length, _DIM), lambda h, i: (h, 0, 0))
    array = halves(_HEADS, length, _DIM)
    call = pl.pallas_call(
        kernel,
        out_shape=array,
        grid=(_HEADS, length // block_q),
        in_specs=[queries, keys, keys],
        out_specs=queries,
    )
    return call, (array, array, array)


def _online(q: Any, k: Any, v: Any, state: tuple[Any, Any, Any], scale: float) -> None:
    """One step of a softmax that is normalized at the end."""
    most, mass, total = state
    scores = jax.lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    scores = scores * scale
    highest = jnp.maximum(most[...], jnp.max(scores, axis=-1, keepdims=True))
    weights = jnp.exp(scores - highest[:, :1])
    fade = jnp.exp(most[...] - highest)
    mass[...] = mass[...] * fade + jnp.sum(weights, axis=-1, keepdims=True)
    total[...] = total[...] * fade[:, :1] + jnp.dot(
        weights.astype(v.dtype), v, preferred_element_type=jnp.float32
    )
    most[...] = highest


def online(block_q: int = 512, block_k: int = 512) -> Any:
    """Blocks of keys one after another, running maximum and sum in scratch."""
    steps = _LENGTH // block_k

    def kernel(q: Any, k: Any, v: Any, out: Any, most: Any, mass: Any, total: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            most[...] = jnp.full_like(most, -1e30)
            mass[...] = jnp.zeros_like(mass)
            total[...] = jnp.zeros_like(total)

        _online(q[...], k[...], v[...], (most, mass, total), _DIM**-0.5)

        @pl.when(pl.program_id(2) == steps - 1)
        def _() -> None:
            out[...] = (total[...] / mass[...][:, :1]).astype(out.dtype)

    queries = pl.BlockSpec((None, block_q, _DIM), lambda h, i, j: (h, i, 0))
    keys = pl.BlockSpec((None, block_k, _DIM), lambda h, i, j: (h, j, 0))
    array = halves(_HEADS, _LENGTH, _DIM)
    call = pl.pallas_call(
        kernel,
        out_shape=array,
        grid=(_HEADS, _LENGTH // block_q, steps),
        in_specs=[queries, keys, keys],
        out_specs=queries,
        scratch_shapes=[
            pltpu.VMEM((block_q, 128), jnp.float32),
            pltpu.VMEM((block_q, 128), jnp.float32),
            pltpu.VMEM((block_q, _DIM), jnp.float32),
        ],
    )
    return call, (array, array, array)


def windowed(block_q: int = 256, window: int = 1024) -> Any:
    """Keys of a window in a loop inside the kernel, without a grid over them."""

    def kernel(q: Any, k: Any, v: Any, out: Any, most: Any, mass: Any, total: Any) -> None:
        most[...] = jnp.full_like(most, -1e30)
        mass[...] = jnp.zeros_like(mass)
        total[...] = jnp.zeros_like(total)

        @pl.loop(0, window // 256)
        def _(step: Any) -> None:
            part = pl.ds(step * 256, 256)
            _online(q[...], k[part, :], v[part, :], (most, mass, total), _DIM**-0.5)

        out[...] = (total[...] / mass[...][:, :1]).astype(out.dtype)

    queries = pl.BlockSpec((None, block_q, _DIM), lambda h, i: (h, i, 0))
    keys = pl.BlockSpec((None, window, _DIM), lambda h, i: (h, i * block_q // window, 0))
    array = halves(_HEADS, _LENGTH, _DIM)
    call = pl.pallas_call(
        kernel,
        out_shape=array,
        grid=(_HEADS, _LENGTH // block_q),
        in_specs=[queries, keys, keys],
        out_specs=queries,
        scratch_shapes=[
            pltpu.VMEM((block_q, 128), jnp.float32),
            pltpu.VMEM((block_q, 128), jnp.float32),
            pltpu.VMEM((block_q, _DIM), jnp.float32),
        ],
    )
    return call, (array, array, array)


def pages(page: int = 256, count: int = 16) -> Any:
    """One query over pages that a prefetched table names."""

    def kernel(
        table: Any, q: Any, k: Any, v: Any, out: Any, most: Any, mass: Any, total: Any
    ) -> None:
        del table

        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            most[...] = jnp.full_like(most, -1e30)
            mass[...] = jnp.zeros_like(mass)
            total[...] = jnp.zeros_like(total)

        _online(q[...], k[...], v[...], (most, mass, total), _DIM**-0.5)

        @pl.when(pl.program_id(1) == count - 1)
        def _() -> None:
            out[...] = (total[...] / mass[...][:, :1]).astype(out.dtype)

    cache = pl.BlockSpec((None, page, _DIM), lambda b, j, table: (table[b, j], 0, 0))
    queries = pl.BlockSpec((None, 16, _DIM), lambda b, j, table: (b, 0, 0))
    call = pl.pallas_call(
        kernel,
        out_shape=halves(32, 16, _DIM),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(32, count),
            in_specs=[queries, cache, cache],
            out_specs=queries,
            scratch_shapes=[
                pltpu.VMEM((16, 128), jnp.float32),
                pltpu.VMEM((16, 128), jnp.float32),
                pltpu.VMEM((16, _DIM), jnp.float32),
            ],
        ),
    )
    return call, (numbers(32, count), halves(32, 16, _DIM), *([halves(512, page, _DIM)] * 2))


def heads_together(block_q: int = 128, block_k: int = 512) -> Any:
    """Several heads in one block, as kernels of grouped queries have them."""

    def kernel(q: Any, k: Any, v: Any, out: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            out[...] = jnp.zeros_like(out)

        for head in range(4):
            scores = jax.lax.dot_general(
                q[head], k[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
            )
            weights = jax.nn.sigmoid(scores).astype(v.dtype)
            out[head] += jnp.dot(weights, v[...], preferred_element_type=jnp.float32)

    queries = pl.BlockSpec((4, block_q, _DIM), lambda i, j: (0, i, 0))
    keys = pl.BlockSpec((block_k, _DIM), lambda i, j: (j, 0))
    call = pl.pallas_call(
        kernel,
        out_shape=floats(4, 2048, _DIM),
        grid=(2048 // block_q, 2048 // block_k),
        in_specs=[queries, keys, keys],
        out_specs=queries,
    )
    return call, (halves(4, 2048, _DIM), halves(2048, _DIM), halves(2048, _DIM))
