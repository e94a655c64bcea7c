"""Kernels over rows: norms, softmax, losses, activations, optimizers, scans, copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tools.programs.parts import floats, halves, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

_ROWS, _WIDTH = 8192, 4096


def _by_rows(
    function: Callable[..., Any],
    block: int,
    inputs: int = 1,
    dtype: str = "bfloat16",
    width: int = _WIDTH,
    shared: int = 0,
) -> Any:
    """A function of whole rows; `shared` operands have one row for all."""

    def kernel(*refs: Any) -> None:
        *given, out = refs
        made = function(*(ref[...].astype(jnp.float32) for ref in given))
        out[...] = made.astype(out.dtype)

    rows = pl.BlockSpec((block, width), lambda i: (i, 0))
    one = pl.BlockSpec((1, width), lambda i: (0, 0))
    call = pl.pallas_call(
        kernel,
        out_shape=floats(_ROWS, width, dtype=dtype),
        grid=(_ROWS // block,),
        in_specs=[rows] * inputs + [one] * shared,
        out_specs=rows,
    )
    whole = [floats(_ROWS, width, dtype=dtype)] * inputs
    return call, (*whole, *([floats(1, width)] * shared))


def add(block: int = 256) -> Any:
    return _by_rows(lambda x, y: x + y, block, 2)


def softmax(block: int = 256) -> Any:
    return _by_rows(lambda x: jax.nn.softmax(x, axis=-1), block)


def rms_norm(block: int = 256) -> Any:
    def norm(x: Any, scale: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale

    return _by_rows(norm, block, shared=1)


def layer_norm(block: int = 256) -> Any:
    def norm(x: Any, scale: Any, shift: Any) -> Any:
        mean = jnp.mean(x, axis=-1, keepdims=True)
        spread = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(spread + 1e-5) * scale + shift

    return _by_rows(norm, block, shared=2)


def norm_backward(block: int = 128) -> Any:
    def backward(x: Any, grown: Any, scale: Any) -> Any:
        inverse = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
        weighted = grown * scale
        along = jnp.mean(weighted * x, axis=-1, keepdims=True)
        return inverse * (weighted - x * inverse**2 * along)

    return _by_rows(backward, block, 2, shared=1)


def gelu(block: int = 512) -> Any:
    return _by_rows(jax.nn.gelu, block, dtype="float32", width=2048)


def rotary(block: int = 512) -> Any:
    """Halves of a row turned by a table of angles."""

    def turn(x: Any, cosine: Any, sine: Any) -> Any:
        left, right = jnp.split(x, 2, axis=-1)
        return x * cosine + jnp.concatenate([-right, left], axis=-1) * sine

    return _by_rows(turn, block, 3, dtype="float32", width=512)


def adam(block: int = 256) -> Any:
    """Weights and moments updated where they are."""

    def kernel(w: Any, m: Any, v: Any, g: Any, w_out: Any, m_out: Any, v_out: Any) -> None:
        grown = g[...].astype(jnp.float32)
        first = 0.9 * m[...] + 0.1 * grown
        second = 0.99 * v[...] + 0.01 * grown * grown
        m_out[...], v_out[...] = first, second
        w_out[...] = w[...] - 1e-3 * first * jax.lax.rsqrt(second + 1e-8)

    spec = pl.BlockSpec((block, 2048), lambda i: (i, 0))
    state = floats(4096, 2048)
    call = pl.pallas_call(
        kernel,
        out_shape=(state, state, state),
        grid=(4096 // block,),
        in_specs=[spec] * 4,
        out_specs=(spec, spec, spec),
        input_output_aliases={0: 0, 1: 1, 2: 2},
    )
    return call, (state, state, state, halves(4096, 2048))


def quantize(block: int = 512) -> Any:
    """Rows of eight bits, each with its scale."""

    def kernel(x: Any, out: Any, scale: Any) -> None:
        wide = x[...].astype(jnp.float32)
        most = jnp.max(jnp.abs(wide), axis=-1, keepdims=True) / 127.0
        scale[...] = jnp.broadcast_to(most, scale.shape)
        out[...] = jnp.round(wide / most).astype(jnp.int8)

    call = pl.pallas_call(
        kernel,
        out_shape=(floats(_ROWS, _WIDTH, dtype="int8"), floats(_ROWS, 128)),
        grid=(_ROWS // block,),
        in_specs=[pl.BlockSpec((block, _WIDTH), lambda i: (i, 0))],
        out_specs=(
            pl.BlockSpec((block, _WIDTH), lambda i: (i, 0)),
            pl.BlockSpec((block, 128), lambda i: (i, 0)),
        ),
    )
    return call, (halves(_ROWS, _WIDTH),)


def total(block: int = 512) -> Any:
    """A sum over rows, kept in a result that stays."""

    def kernel(x: Any, out: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            out[...] = jnp.zeros_like(out)

        out[...] += jnp.sum(x[...].astype(jnp.float32), axis=0, keepdims=True)

    call = pl.pallas_call(
        kernel,
        out_shape=floats(1, _WIDTH),
        grid=(_ROWS // block,),
        in_specs=[pl.BlockSpec((block, _WIDTH), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((1, _WIDTH), lambda i: (0, 0)),
    )
    return call, (halves(_ROWS, _WIDTH),)


def cross_entropy(block: int = 256, block_v: int = 2048) -> Any:
    """The log of a sum of exponentials over the vocabulary, block by block."""

    def kernel(x: Any, out: Any, most: Any, mass: Any) -> None:
        step = pl.program_id(1)

        @pl.when(step == 0)
        def _() -> None:
            most[...] = jnp.full_like(most, -1e30)
            mass[...] = jnp.zeros_like(mass)

        wide = x[...].astype(jnp.float32)
        highest = jnp.maximum(most[...], jnp.max(wide, axis=-1, keepdims=True))
        here = jnp.sum(jnp.exp(wide - highest[:, :1]), axis=-1, keepdims=True)
        mass[...] = mass[...] * jnp.exp(most[...] - highest) + here
        most[...] = highest

        @pl.when(step == 32768 // block_v - 1)
        def _() -> None:
            out[...] = most[...] + jnp.log(mass[...])

    call = pl.pallas_call(
        kernel,
        out_shape=floats(2048, 128),
        grid=(2048 // block, 32768 // block_v),
        in_specs=[pl.BlockSpec((block, block_v), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((block, 128), lambda i, j: (i, 0)),
        scratch_shapes=[pltpu.VMEM((block, 128), jnp.float32)] * 2,
    )
    return call, (halves(2048, 32768),)


def transpose(block: int = 512) -> Any:
    def kernel(x: Any, out: Any) -> None:
        out[...] = x[...].T

    call = pl.pallas_call(
        kernel,
        out_shape=floats(4096, 4096),
        grid=(4096 // block, 4096 // block),
        in_specs=[pl.BlockSpec((block, block), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((block, block), lambda i, j: (j, i)),
    )
    return call, (floats(4096, 4096),)


def recurrence(block: int = 256) -> Any:
    """A gated linear recurrence over time, its state in scratch between blocks."""

    def kernel(gate: Any, x: Any, out: Any, state: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            state[...] = jnp.zeros_like(state)

        def step(t: Any, carried: Any) -> Any:
            made = carried * gate[pl.ds(t, 1), :] + x[pl.ds(t, 1), :]
            out[pl.ds(t, 1), :] = made
            return made

        state[...] = jax.lax.fori_loop(0, block, step, state[...])

    spec = pl.BlockSpec((block, 2048), lambda i: (i, 0))
    call = pl.pallas_call(
        kernel,
        out_shape=floats(4096, 2048),
        grid=(4096 // block,),
        in_specs=[spec, spec],
        out_specs=spec,
        scratch_shapes=[pltpu.VMEM((1, 2048), jnp.float32)],
    )
    return call, (floats(4096, 2048), floats(4096, 2048))


def gather(block: int = 1024) -> Any:
    """Rows of a table, chosen by prefetched numbers; eight at a time are in VMEM."""

    def kernel(ids: Any, table: Any, out: Any) -> None:
        del ids
        out[...] = table[...]

    call = pl.pallas_call(
        kernel,
        out_shape=floats(256, 8, block),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(256,),
            in_specs=[pl.BlockSpec((1, 8, block), lambda i, ids: (ids[i], 0, 0))],
            out_specs=pl.BlockSpec((1, 8, block), lambda i, ids: (i, 0, 0)),
        ),
    )
    return call, (numbers(256), floats(512, 8, block))


def by_hand(block: int = 512) -> Any:
    """Operands stay in HBM; the kernel copies blocks into two slots of scratch itself."""

    def kernel(x: Any, out: Any, slots: Any, done: Any) -> None:
        steps = 4096 // block

        def copy(step: Any, slot: Any) -> Any:
            source = x.at[pl.ds(step * block, block), :]
            return pltpu.make_async_copy(source, slots.at[slot], done.at[slot])

        copy(0, 0).start()
        out[...] = jnp.zeros_like(out)

        @pl.loop(0, steps)
        def _(step: Any) -> None:
            slot = jax.lax.rem(step, 2)

            @pl.when(step + 1 < steps)
            def _() -> None:
                copy(step + 1, 1 - slot).start()

            copy(step, slot).wait()
            out[...] += jnp.sum(slots[slot], axis=0, keepdims=True)

    call = pl.pallas_call(
        kernel,
        out_shape=floats(1, 2048),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[
            pltpu.VMEM((2, block, 2048), jnp.float32),
            pltpu.SemaphoreType.DMA((2,)),
        ],
    )
    return call, (floats(4096, 2048),)


def whole(rows: int = 512) -> Any:
    """Without a grid: whole arrays in VMEM."""

    def kernel(x: Any, y: Any, out: Any) -> None:
        out[...] = jnp.tanh(x[...]) * y[...]

    array = floats(rows, 1024)
    return pl.pallas_call(kernel, out_shape=array), (array, array)


def single_buffered(block: int = 512) -> Any:
    """Blocks that are asked for once, not twice."""

    def kernel(x: Any, out: Any) -> None:
        out[...] = x[...] * 2.0

    once = pl.BlockSpec((block, 2048), lambda i: (i, 0), pipeline_mode=pl.Buffered(1))
    call = pl.pallas_call(
        kernel,
        out_shape=floats(4096, 2048),
        grid=(4096 // block,),
        in_specs=[once],
        out_specs=pl.BlockSpec((block, 2048), lambda i: (i, 0)),
    )
    return call, (floats(4096, 2048),)


def thin(block: int = 8192) -> Any:
    """Few rows and odd sizes, which fill tiles badly."""

    def kernel(x: Any, y: Any, out: Any) -> None:
        out[...] = x[...] + y[...].astype(jnp.float32)

    call = pl.pallas_call(
        kernel,
        out_shape=floats(3, 65536),
        grid=(65536 // block,),
        in_specs=[
            pl.BlockSpec((3, block), lambda i: (0, i)),
            pl.BlockSpec((3, block), lambda i: (0, i)),
        ],
        out_specs=pl.BlockSpec((3, block), lambda i: (0, i)),
    )
    return call, (floats(3, 65536), halves(3, 65536))
