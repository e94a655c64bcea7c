"""Measures on a GPU how long single instructions take, by kind and shape, for the model of time.

    python -m tools.calibrate_kernels FILE [--seconds 240] [--small] [--only NAME,...]

Every part is a list of programs of a few operations each (and of their gradients): convolutions of
one, two and three dimensions, matrix products as models have them, sorts, scatters, transforms,
scans, normalizations, loops. Of each program FILE has its time, the module that its compiler made
of it, and the time of each of its instructions by the profiler; what the model says of the same
instructions can be computed from the module. Kernels are started one by one, not as a graph,
except in loops. FILE is written after every part, and no program is begun once the seconds are
over. `--small` shrinks everything, to try the script itself.
"""

from __future__ import annotations

import argparse
import base64
import sys
import zlib
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.calibrate_clock import Book, Row, kernels_of, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
lax: Any = import_module("jax.lax")

RUNS = 3
"""Of a program while the profiler looks."""
TOGETHER = 6
"""Operations of one program."""
APART = {"xla_gpu_graph_min_graph_size": "1000000"}
"""An option with which no kernels are started as a graph."""


class Op(NamedTuple):
    """An operation on arrays."""

    call: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    """Of its arguments."""
    dtypes: tuple[str, ...]
    """Of its arguments; of integers, as in `int:N`, below what they lie."""
    differentiated: tuple[int, ...] = ()
    """The arguments by which its gradient is computed as well."""


def filled(shape: tuple[int, ...], dtype: str) -> Any:
    """Numbers without an order; of `int:N`, those below N.

    Those of `sorted:N` are in order, half of those of `hot:N` in a thousandth of the places.
    """
    size = 1
    for side in shape:
        size *= side
    places = jnp.arange(size, dtype="uint32")
    kind, _, most = dtype.partition(":")
    if most:
        below, spread = int(most), places * jnp.uint32(2654435761) >> 7
        if kind == "sorted":
            found = (places.astype("float32") * (below / size)).astype("uint32")
        elif kind == "hot":
            found = jnp.where(places % 2 == 0, spread % max(below // 1000, 1), spread % below)
        else:
            found = spread % below
        return found.astype("int32").reshape(shape)
    return jnp.sin(places.astype("float32") * 1.7).astype(dtype).reshape(shape)


def run_op(op: Op, arguments: Sequence[Any]) -> Any:
    """What an operation gives, and its gradients by a sum with weights that are not all one."""
    if not op.differentiated:
        return op.call(*arguments)

    def of(*chosen: Any) -> Any:
        given = list(arguments)
        for place, value in zip(op.differentiated, chosen, strict=True):
            given[place] = value
        return op.call(*given)

    result, back = jax.vjp(of, *(arguments[place] for place in op.differentiated))
    result = lax.optimization_barrier(result)
    return result, back(lax.optimization_barrier(jnp.sin(result)))


def measured(kind: str, ops: Sequence[Op], *, apart: bool = True) -> Row:
    """One program of several operations."""

    def fill() -> Any:
        return [
            [filled(shape, dtype) for shape, dtype in zip(op.shapes, op.dtypes, strict=True)]
            for op in ops
        ]

    def program(arguments: Any) -> Any:
        return [run_op(op, some) for op, some in zip(ops, arguments, strict=True)]

    arguments = jax.block_until_ready(jax.jit(fill)())
    options = APART if apart else None
    compiled = jax.jit(program).lower(arguments).compile(compiler_options=options)
    found = timed(partial(compiled, arguments), 0.03)
    [module] = compiled.runtime_executable().hlo_modules()
    said: Row = {
        "kind": kind,
        **found._asdict(),
        "shapes": [op.shapes for op in ops],
        "dtypes": [op.dtypes for op in ops],
        "module": base64.b85encode(
            zlib.compress(module.as_serialized_hlo_module_proto(), 9)
        ).decode(),
        "runs": RUNS,
    }

    def runs() -> None:
        for _ in range(RUNS):
            jax.block_until_ready(compiled(arguments))

    try:
        said["kernels"] = kernels_of(runs)
    except Exception as error:  # noqa: BLE001 - the time of the whole is known anyway
        said["kernels failed"] = f"{type(error).__name__}: {error}"[:500]
    return said


def together(kind: str, ops: Sequence[Op]) -> Iterator[Row]:
    """Programs of a few operations each."""
    for first in range(0, len(ops), TOGETHER):
        yield measured(kind, ops[first : first + TOGETHER])


# Convolutions.


class Window(NamedTuple):
    """A convolution of a batch of cubes, or what has fewer dimensions."""

    batch: int
    sides: tuple[int, ...]
    inside: int
    outside: int
    window: tuple[int, ...]
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    is_transposed: bool = False


def _convolution(of: Window, dtype: str, shrink: int) -> Op:
    letters = "DHW"[-len(of.sides) :]
    numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    many = len(of.sides)

    def call(x: Any, w: Any) -> Any:
        strides = (of.stride,) * many
        if of.is_transposed:
            return lax.conv_transpose(x, w, strides, "SAME", dimension_numbers=numbers)
        return lax.conv_general_dilated(
            x,
            w,
            strides,
            "SAME",
            rhs_dilation=(of.dilation,) * many,
            dimension_numbers=numbers,
            feature_group_count=of.groups,
        )

    x = (max(of.batch // shrink, 1), *(max(side // shrink, 8) for side in of.sides), of.inside)
    w = (*of.window, of.inside // of.groups, of.outside)
    return Op(call, (x, w), (dtype, dtype), (0, 1))


LINES = [
    Window(16, (8192,), 32, 32, (3,)),
    Window(16, (8192,), 32, 32, (11,), dilation=5),
    Window(16, (4096,), 64, 64, (7,), dilation=3),
    Window(16, (2048,), 128, 128, (3,), dilation=1),
    Window(16, (512,), 256, 256, (11,)),
    Window(16, (8192,), 32, 1, (7,)),
    Window(16, (8192,), 1, 32, (15,)),
    Window(16, (256,), 512, 256, (16,), stride=8, is_transposed=True),
    Window(16, (4096,), 64, 32, (4,), stride=2, is_transposed=True),
    Window(16, (2048,), 128, 128, (41,), stride=2, groups=4),
    Window(8, (16384,), 64, 128, (2,), dilation=64),
    Window(32, (1024,), 512, 512, (3,)),
    Window(32, (1024,), 512, 512, (1,)),
    Window(32, (1024,), 256, 256, (31,), groups=256),
    Window(16, (2048,), 1024, 1024, (4,), groups=1024),
    Window(16, (32768,), 16, 16, (5,)),
    Window(64, (16000,), 1, 512, (10,), stride=5),
    Window(64, (3200,), 512, 512, (3,), stride=2),
]
PLANES = [
    Window(64, (64, 64), 3, 32, (3, 3)),
    Window(64, (64, 64), 32, 32, (3, 3)),
    Window(64, (64, 64), 16, 16, (3, 3)),
    Window(64, (64, 64), 32, 3, (3, 3)),
    Window(64, (64, 64), 3, 64, (4, 4), stride=2),
    Window(64, (32, 32), 64, 128, (4, 4), stride=2),
    Window(64, (32, 32), 128, 128, (3, 3)),
    Window(64, (16, 16), 256, 256, (3, 3)),
    Window(64, (8, 8), 512, 512, (3, 3)),
    Window(64, (32, 32), 128, 64, (4, 4), stride=2, is_transposed=True),
    Window(64, (64, 64), 64, 3, (4, 4), stride=2, is_transposed=True),
    Window(32, (128, 128), 64, 64, (3, 3)),
    Window(256, (28, 28), 1, 16, (8, 8), stride=2),
    Window(16, (2730, 3), 128, 512, (5, 1), stride=1),
    Window(64, (32, 32), 96, 96, (7, 7), groups=96),
    Window(64, (28, 28), 192, 192, (3, 3), groups=192),
    Window(64, (28, 28), 256, 256, (3, 3), groups=32),
    Window(64, (14, 14), 512, 512, (3, 3), groups=8),
    Window(128, (84, 84), 4, 32, (8, 8), stride=4),
    Window(64, (56, 56), 64, 256, (1, 1)),
    Window(8, (64, 64), 8, 8, (3, 3)),
]
VOLUMES = [
    Window(2, (64, 64, 64), 1, 16, (3, 3, 3)),
    Window(2, (64, 64, 64), 16, 16, (3, 3, 3)),
    Window(2, (32, 32, 32), 32, 64, (3, 3, 3)),
    Window(4, (16, 16, 16), 128, 128, (3, 3, 3)),
    Window(4, (16, 32, 32), 64, 64, (1, 3, 3)),
    Window(2, (32, 32, 32), 64, 32, (2, 2, 2), stride=2, is_transposed=True),
]


def lines(shrink: int) -> Iterator[Row]:
    """Convolutions of one dimension."""
    yield from together("lines f32", [_convolution(one, "float32", shrink) for one in LINES])
    some = [_convolution(one, "bfloat16", shrink) for one in LINES[::3]]
    yield from together("lines bf16", some)


def planes(shrink: int) -> Iterator[Row]:
    """Convolutions of two dimensions."""
    yield from together("planes f32", [_convolution(one, "float32", shrink) for one in PLANES])
    some = [_convolution(one, "bfloat16", shrink) for one in PLANES[::2]]
    yield from together("planes bf16", some)


def volumes(shrink: int) -> Iterator[Row]:
    """Convolutions of three dimensions."""
    yield from together("volumes f32", [_convolution(one, "float32", shrink) for one in VOLUMES])
    some = [_convolution(one, "bfloat16", shrink) for one in VOLUMES[::2]]
    yield from together("volumes bf16", some)


def examples(shrink: int) -> Iterator[Row]:
    """Gradients by the filter of every example alone."""
    windows = [
        Window(1, (28, 28), 1, 16, (8, 8), stride=2),
        Window(1, (14, 14), 16, 32, (4, 4), stride=2),
        Window(1, (32, 32), 32, 32, (3, 3)),
        Window(1, (1024,), 32, 32, (5,)),
    ]
    ops = []
    for one in windows:
        for batch in (64, 256):
            op = _convolution(one, "float32", shrink)
            x, w = op.shapes

            def by_filter(x: Any, w: Any, op: Op = op) -> Any:
                def loss(w: Any, x: Any) -> Any:
                    return (op.call(x, w) ** 2).sum()

                return jax.vmap(jax.grad(loss), in_axes=(None, 0))(w, x)

            shapes = ((max(batch // shrink, 2), *x), w)
            ops.append(Op(by_filter, shapes, op.dtypes))
    yield from together("examples", ops)


# Matrix products.

PRODUCTS = [
    (1, 1024, 1024, 1024),
    (1, 2048, 2048, 2048),
    (1, 4096, 4096, 4096),
    (1, 2048, 1024, 4096),
    (1, 8192, 768, 768),
    (1, 8192, 768, 3072),
    (1, 8192, 3072, 768),
    (1, 768, 8192, 3072),
    (1, 8192, 768, 50304),
    (1, 4096, 256, 256),
    (1, 16384, 128, 128),
    (1, 65536, 64, 64),
    (1, 65536, 256, 256),
    (1, 65536, 3, 256),
    (1, 65536, 256, 4),
    (1, 64, 1024, 4096),
    (1, 256, 512, 2048),
    (1, 128, 128, 128),
    (1, 256, 65536, 256),
    (1, 64, 65536, 64),
    (96, 1024, 64, 1024),
    (96, 1024, 1024, 64),
    (256, 128, 64, 128),
    (256, 256, 32, 256),
    (2048, 64, 32, 64),
    (1024, 32, 32, 32),
    (64, 512, 512, 512),
    (8, 1024, 512, 2048),
    (4096, 8, 64, 64),
    (4096, 1, 128, 128),
]


def products(shrink: int) -> Iterator[Row]:
    """Matrix products, of the sides that models have."""
    for dtype, precision, shapes in (
        ("float32", None, PRODUCTS),
        ("bfloat16", None, PRODUCTS),
        ("float32", "highest", PRODUCTS[::3]),
    ):
        ops = []
        for batch, *sides in shapes:
            m, k, n = (max(side // shrink, 1) for side in sides)
            call = partial(jnp.matmul, precision=precision)
            ops.append(Op(call, ((batch, m, k), (batch, k, n)), (dtype, dtype)))
        yield from together(f"products {dtype} {precision or 'default'}", ops)


# What moves and orders.


def _summed(values: Any, places: Any, count: int) -> Any:
    return jax.ops.segment_sum(values, places, count)


def moves(shrink: int) -> Iterator[Row]:
    """Sorts, gathers, scatters."""
    rows = 1_000_000 // shrink
    yield from together(
        "sorts",
        [
            Op(jnp.sort, ((1 << 20,),), ("float32",)),
            Op(jnp.sort, ((1 << 22,),), ("float32",)),
            Op(jnp.sort, ((1024, 1024),), ("float32",)),
            Op(jnp.argsort, ((64, 16384),), ("float32",)),
            Op(jnp.argsort, ((8192, 128),), ("float32",)),
            Op(jnp.argsort, ((1 << 20,),), ("int:1000000",)),
            Op(lambda x: lax.top_k(x, 2), ((16384, 64),), ("float32",)),
            Op(lambda x: lax.top_k(x, 20), ((16384, 1024),), ("float32",)),
            Op(lambda x: lax.top_k(x, 8), ((8192, 256),), ("bfloat16",)),
            Op(lambda x: jnp.argmax(x, -1), ((8192, 50304),), ("float32",)),
        ],
    )
    yield from together(
        "scatters",
        [
            Op(
                partial(_summed, count=10_000), ((200_000, 64), (200_000,)), ("float32", "int:9999")
            ),
            Op(partial(_summed, count=99_999), ((rows, 16), (rows,)), ("float32", "int:99999")),
            Op(partial(_summed, count=99_999), ((rows,), (rows,)), ("float32", "int:99999")),
            Op(
                partial(_summed, count=20_000),
                ((300_000, 128), (300_000,)),
                ("bfloat16", "int:19999"),
            ),
            Op(lambda t, i: t[i], ((50304, 768), (8192,)), ("float32", "int:50304"), (0,)),
            Op(lambda t, i: t[i], ((100_000, 64), (rows,)), ("float32", "int:99999"), (0,)),
            Op(lambda t, i: t[i], ((1 << 19, 2), (1 << 21,)), ("float32", "int:500000"), (0,)),
            Op(lambda t, i: t[i], ((100_000, 64), (rows,)), ("bfloat16", "int:99999")),
            Op(
                lambda x, i: jnp.take_along_axis(x, i[:, None], 1),
                ((8192, 50304), (8192,)),
                ("float32", "int:50304"),
                (0,),
            ),
            Op(
                jax.vmap(lambda a, b: a[b]),
                ((64, 2048, 64), (64, 2048 * 8)),
                ("float32", "int:2048"),
                (0,),
            ),
            Op(
                partial(jax.ops.segment_max, num_segments=10_000),
                ((200_000, 64), (200_000,)),
                ("float32", "int:9999"),
            ),
            Op(lambda x, i: x.at[i].set(1.0), ((1 << 22,), (1 << 20,)), ("float32", "int:4000000")),
        ],
    )


def transforms(shrink: int) -> Iterator[Row]:
    """Fourier transforms, cumulative sums, scans by halves, decompositions."""
    fewer = max(32 // shrink, 2)
    yield from together(
        "transforms",
        [
            Op(jnp.fft.rfft2, ((fewer, 64, 128, 128),), ("float32",)),
            Op(lambda x: jnp.fft.rfft2(x, axes=(1, 2)), ((fewer, 128, 128, 64),), ("float32",)),
            Op(jnp.fft.rfft, ((4096, 1024),), ("float32",)),
            Op(lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), ((fewer * 8, 16384),), ("float32",)),
            Op(lambda x: jnp.fft.fftn(x, axes=(1, 2, 3)).real, ((2, 64, 64, 64),), ("float32",)),
            Op(lambda x: jnp.fft.rfft2(x).real, ((fewer * 64, 48, 48),), ("float32",)),
        ],
    )

    def linear(a: Any, b: Any) -> Any:
        def step(left: Any, right: Any) -> Any:
            return left[0] * right[0], right[0] * left[1] + right[1]

        return lax.associative_scan(step, (a, b), axis=1)[1]

    line = ((4, 2048 // shrink, 512),)
    yield from together(
        "scans",
        [
            Op(lambda x: jnp.cumsum(x, 1), ((8192, 1024),), ("float32",)),
            Op(lambda x: jnp.cumsum(x, 1), ((64, 16384),), ("float32",)),
            Op(lambda x: jnp.cumsum(x, 1), ((16, 2048, 256),), ("float32",)),
            Op(jnp.cumsum, ((1 << 22,),), ("float32",)),
            Op(linear, line * 2, ("float32", "float32")),
            Op(lambda x: jnp.cumprod(x, 1), ((65536, 64),), ("float32",)),
        ],
    )
    square = (64 // shrink + 1, 128, 128)

    def positive(x: Any) -> Any:
        return x @ x.swapaxes(-1, -2) / 128 + jnp.eye(128)

    yield from together(
        "decompositions",
        [
            Op(lambda x: jnp.linalg.cholesky(positive(x)), (square,), ("float32",)),
            Op(lambda x: jnp.linalg.inv(positive(x)), (square,), ("float32",)),
            Op(lambda x: jnp.linalg.qr(x)[0], (square,), ("float32",)),
            Op(lambda x: jnp.linalg.eigh(positive(x))[0], (square[1:],), ("float32",)),
        ],
    )


def fusions(shrink: int) -> Iterator[Row]:
    """Pools, normalizations, attention's middle, random numbers, functions."""
    fewer = max(64 // shrink, 2)

    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    def mean_pooled(x: Any) -> Any:
        return lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def normed(x: Any, axis: Any = -1) -> Any:
        mean = x.mean(axis, keepdims=True)
        return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(axis, keepdims=True) + 1e-5)

    image, rows = ((fewer, 64, 64, 64),), ((8192 // shrink, 1024),)
    attention = ((fewer, 12, 512, 512),)
    yield from together(
        "fusions",
        [
            Op(pooled, image, ("float32",), (0,)),
            Op(mean_pooled, image, ("float32",), (0,)),
            Op(partial(normed, axis=(0, 1, 2)), image, ("float32",), (0,)),
            Op(partial(normed, axis=(1, 2)), image, ("float32",), (0,)),
            Op(normed, rows, ("float32",), (0,)),
            Op(normed, rows, ("bfloat16",), (0,)),
            Op(jax.nn.softmax, attention, ("float32",), (0,)),
            Op(jax.nn.softmax, attention, ("bfloat16",), (0,)),
            Op(jax.nn.gelu, ((8192, 4096),), ("float32",), (0,)),
            Op(partial(jax.nn.gelu, approximate=False), ((8192, 4096),), ("bfloat16",), (0,)),
            Op(
                lambda x: jnp.sin(x) * jnp.cos(2 * x) * jnp.sin(4 * x),
                ((8192, 4096),),
                ("float32",),
            ),
            Op(lambda x: jnp.log1p(jnp.exp(x)) ** 1.7, ((8192, 4096),), ("float32",)),
            Op(
                lambda x: jnp.where(jax.random.bernoulli(jax.random.key(0), 0.9, x.shape), x, 0),
                ((8192, 4096),),
                ("float32",),
            ),
            Op(
                lambda x: x + jax.random.normal(jax.random.key(1), x.shape),
                ((8192, 4096),),
                ("float32",),
            ),
            Op(lambda x: jax.nn.logsumexp(x, -1), ((8192, 50304),), ("float32",)),
            Op(lambda x: x.transpose(0, 3, 1, 2) * 2, image, ("float32",)),
            Op(lambda x: jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), image, ("float32",)),
            Op(lambda x: ((x[:, None] - x[None]) ** 2).sum(-1), ((4096, 3),), ("float32",)),
            Op(lambda x: jnp.abs(x[:, None] - x[None]).sum(-1), ((1024, 64),), ("float32",)),
        ],
    )


def loops(shrink: int) -> Iterator[Row]:
    """Loops of small kernels, with gradients; started as the compiler would."""

    def recurrent(x: Any, w: Any) -> Any:
        size = w.shape[0] // 2

        def cell(state: Any, now: Any) -> Any:
            h, c = state
            i, f, o, g = jnp.split(jnp.concatenate([now, h], -1) @ w, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[1], size), x.dtype)
        return lax.scan(cell, (zero, zero), x)[1]

    def gated(a: Any, b: Any) -> Any:
        def cell(h: Any, now: Any) -> Any:
            h = h * jax.nn.sigmoid(now[0]) + now[1]
            return h, h

        return lax.scan(cell, jnp.zeros(a.shape[1:]), (a, b))[1]

    def layers(x: Any, w: Any) -> Any:
        def layer(x: Any, w: Any) -> Any:
            return jnp.tanh(x @ w), None

        return lax.scan(layer, x, w)[0]

    steps = 128 // shrink
    for name, op in {
        "recurrent, 512": Op(recurrent, ((steps, 64, 512), (1024, 2048)), ("float32",) * 2, (0, 1)),
        "recurrent, 128": Op(recurrent, ((steps, 32, 128), (256, 512)), ("float32",) * 2, (0, 1)),
        "recurrent, bf16": Op(
            recurrent, ((steps, 256, 1024), (2048, 4096)), ("bfloat16",) * 2, (0, 1)
        ),
        "gated": Op(gated, ((steps * 4, 8, 1024),) * 2, ("float32",) * 2, (0, 1)),
        "gated, many": Op(gated, ((steps, 64, 512, 16),) * 2, ("float32",) * 2, (0, 1)),
        "layers": Op(layers, ((4096, 1024), (12, 1024, 1024)), ("float32",) * 2, (0, 1)),
    }.items():
        yield measured(name, [op], apart=False)


PARTS = (lines, planes, products, moves, fusions, volumes, examples, loops, transforms)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all parts, or those that are named, while there is time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", default="", help="names of parts, divided by commas")
    given = parser.parse_args(arguments)
    chosen = [part for part in PARTS if not given.only or part.__name__ in given.only.split(",")]
    book = Book(given.file)
    for part in chosen:
        if book.seconds > given.seconds:
            break
        book.add(part.__name__, partial(part, 16 if given.small else 1), given.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
