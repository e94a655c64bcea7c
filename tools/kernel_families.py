"""The cases of `tools.calibrate_families`: by family, operations whose time the model is asked for.

Sizes are those of models: 200,000 edges between 24,000 nodes, rows of 64 to 256 numbers, a few
thousand tokens. `shrink` divides the long sides, to try the cases themselves.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.calibrate_kernels import Op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
lax: Any = import_module("jax.lax")

EDGES, NODES = 200_000, 24_000
F32, BF16 = "float32", "bfloat16"


class Case(NamedTuple):
    """A program that is measured by itself."""

    family: str
    name: str
    op: Op
    apart: bool = True
    """Whether its kernels are started one by one, not as a graph."""

    @property
    def key(self) -> str:
        return f"{self.family}/{self.name}{'' if self.apart else ', graph'}"


def all_cases(shrink: int) -> list[Case]:
    """Every case, families in turns, so that each has some where time runs out."""
    found = [case for family in FAMILIES for case in family(shrink)]
    place: dict[str, int] = {}
    ranked: list[tuple[int, int, Case]] = []
    for case in found:
        place[case.family] = place.get(case.family, -1) + 1
        ranked.append((place[case.family], len(ranked), case))
    return [case for _, _, case in sorted(ranked, key=lambda one: one[:2])]


# Scatters and gathers.


def _summed(values: Any, places: Any, count: int, **said: Any) -> Any:
    return jax.ops.segment_sum(values, places, count, **said)


def _sum_case(name: str, sizes: tuple[int, int, int], dtype: str, places: str, **said: Any) -> Case:
    rows, width, count = sizes
    shape = (rows, width) if width else (rows,)
    call = partial(_summed, count=count, **said)
    return Case("scatter", name, Op(call, (shape, (rows,)), (dtype, f"{places}:{count}")))


def scatters(shrink: int) -> Iterator[Case]:
    """Rows added to places: by width, number, targets, element type, order of the indices."""
    edges, nodes = EDGES // shrink, NODES // shrink
    for dtype in (F32, BF16):
        for width in (0, 1, 4, 16, 64, 128, 256):
            sizes = (edges, width, nodes)
            yield _sum_case(f"width {width} {dtype}", sizes, dtype, "int")
        for count in (8, 64, 1024, 1_000_000 // shrink):
            yield _sum_case(f"targets {count} {dtype}", (edges, 64, count), dtype, "int")
        for rows in (2_000 // min(shrink, 4), edges // 10, edges * 5):
            yield _sum_case(f"rows {rows} {dtype}", (rows, 64, nodes), dtype, "int")
        sizes = (edges, 64, nodes)
        yield _sum_case(f"sorted {dtype}", sizes, dtype, "sorted")
        told = {"indices_are_sorted": True}
        yield _sum_case(f"told sorted {dtype}", sizes, dtype, "sorted", **told)
        yield _sum_case(f"skewed {dtype}", sizes, dtype, "hot")
        yield _sum_case(f"unique {dtype}", (nodes, 64, nodes), dtype, "sorted", unique_indices=True)
    yield _sum_case("width 64 float16", (edges, 64, nodes), "float16", "int")
    for bins in (64, 4096, 1 << 20):
        yield Case(
            "scatter",
            f"histogram of {bins}",
            Op(lambda i, n=bins: jnp.bincount(i, length=n), ((edges * 5,),), (f"int:{bins}",)),
        )
    yield from _other_scatters(edges, nodes)


def _other_scatters(edges: int, nodes: int) -> Iterator[Case]:
    places = ((edges, 64), (edges,)), (F32, f"int:{nodes}")
    calls: dict[str, Callable[..., Any]] = {
        "maximum": partial(jax.ops.segment_max, num_segments=nodes),
        "product": partial(jax.ops.segment_prod, num_segments=nodes),
        "set": lambda x, i: jnp.zeros((nodes, 64)).at[i].set(x),
        "add to given": lambda x, i: jnp.ones((nodes, 64)).at[i].add(x * 2),
        "clipped": lambda x, i: jnp.zeros((nodes, 64)).at[i].add(x, mode="clip"),
        "promised": lambda x, i: jnp.zeros((nodes, 64)).at[i].add(x, mode="promise_in_bounds"),
        "two of them": lambda x, i: (_summed(x, i, nodes), _summed(jnp.sin(x), i, nodes)),
        "sum and count": lambda x, i: (
            _summed(x, i, nodes) / jnp.maximum(_summed(jnp.ones(i.shape), i, nodes), 1)[:, None]
        ),
        "columns": lambda x, i: jnp.zeros((64, nodes)).at[:, i].add(x.T),
    }
    for name, call in calls.items():
        yield Case("scatter", name, Op(call, *places))


def messages(shrink: int) -> Iterator[Case]:
    """Gathers and scatters in fusions, as graph networks and embeddings have them."""
    edges, nodes = EDGES // shrink, NODES // shrink
    ends = ((edges,), (edges,)), (f"int:{nodes}", f"int:{nodes}")

    def passed(x: Any, w: Any, source: Any, target: Any) -> Any:
        return _summed(x[source] * w, target, nodes)

    def mixed(x: Any, w: Any, source: Any, target: Any) -> Any:
        return _summed(jax.nn.relu(x[source] + x[target]) * w, target, nodes)

    def attended(x: Any, w: Any, source: Any, target: Any) -> Any:
        score = w[:, 0]
        most = jax.ops.segment_max(score, target, nodes)
        share = jnp.exp(score - most[target])
        share = share / (_summed(share, target, nodes)[target] + 1e-9)
        return _summed(x[source] * share[:, None], target, nodes)

    for dtype in (F32, BF16):
        for width in (64, 256):
            for name, call in (("passed", passed), ("mixed", mixed), ("attended", attended)):
                shapes = ((nodes, width), (edges, 1), *ends[0])
                op = Op(call, shapes, (dtype, dtype, *ends[1]))
                yield Case("messages", f"{name}, width {width} {dtype}", op)
                op = op._replace(differentiated=(0, 1))
                yield Case("messages", f"{name} and gradients, width {width} {dtype}", op)

    def embedded(table: Any, places: Any) -> Any:
        return table[places]

    for rows, width, count in (
        (50304, 768, 8192),
        (1_000_000 // shrink, 64, 65536),
        (512, 768, 8192),
    ):
        for dtype in (F32, BF16):
            op = Op(embedded, ((rows, width), (count,)), (dtype, f"int:{rows}"), (0,))
            yield Case("messages", f"embedding {rows} {width} {count} {dtype}", op)
    op = Op(
        lambda x, i: jnp.take_along_axis(x, i[:, None], 1),
        ((8192 // shrink, 50304), (8192 // shrink,)),
        (F32, "int:50304"),
        (0,),
    )
    yield Case("messages", "one of a row, and gradient", op)
    neighbours = Op(
        jax.vmap(lambda a, b: a[b]),
        ((16, 1024, 64), (16, 1024 * 20 // shrink)),
        (F32, "int:1024"),
        (0,),
    )
    yield Case("messages", "neighbours, and gradient", neighbours)


def gathers(shrink: int) -> Iterator[Case]:
    """Rows taken from tables in the cache and larger than it, by width."""
    edges = EDGES // shrink * 2
    for dtype in (F32, BF16):
        for width in (0, 1, 2, 4, 16, 64, 256):
            for rows in (NODES // shrink, 2_000_000 // shrink):
                if rows * width > 1 << 28:
                    continue
                shape = (rows, width) if width else (rows,)
                op = Op(lambda t, i: t[i], (shape, (edges,)), (dtype, f"int:{rows}"))
                yield Case("gather", f"width {width} of {rows} {dtype}", op)
    rows = 1_000_000 // shrink
    bag = Op(lambda t, i: t[i].sum(1), ((rows, 64), (16384 // shrink, 32)), (F32, f"int:{rows}"))
    yield Case("gather", "bags of 32", bag)
    op = Op(lambda t, i: t[i], ((rows, 64), (edges,)), (F32, f"sorted:{rows}"))
    yield Case("gather", "sorted", op)
    columns = Op(lambda t, i: t[:, i], ((64, NODES), (edges // 4,)), (F32, f"int:{NODES}"))
    yield Case("gather", "columns", columns)
    slices = Op(
        jax.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (64,)), (None, 0)),
        ((rows,), (edges // 8,)),
        (F32, f"int:{rows}"),
    )
    yield Case("gather", "slices of 64", slices)


# Reductions, scans, sorts, transforms, decompositions.


def reductions(shrink: int) -> Iterator[Case]:
    """Sums of dimensions that lie well and badly, of many rows and of few."""

    def of(shape: tuple[int, ...], axis: Any) -> Iterator[tuple[str, Op]]:
        long = max(range(len(shape)), key=shape.__getitem__)
        shape = tuple(max(s // shrink, 1) if n == long else s for n, s in enumerate(shape))
        for dtype in (F32, BF16):
            call = partial(jnp.sum, axis=axis)
            yield f"{shape} by {axis} {dtype}", Op(call, (shape,), (dtype,))

    shapes: list[tuple[tuple[int, ...], Any]] = [
        ((1 << 20, 4), 0),
        ((1 << 20, 32), 0),
        ((1 << 16, 64), 0),
        ((1 << 16, 256), 0),
        ((8192, 1024), 0),
        ((8192, 50304), 0),
        ((64, 65536), 0),
        ((256, 256), 0),
        ((2048, 64), 0),
        ((1 << 20, 8), 1),
        ((1 << 16, 64), 1),
        ((8192, 1024), 1),
        ((64, 1 << 20), 1),
        ((256, 256), 1),
        ((64, 1024, 64), 1),
        ((16, 2048, 1024), 1),
        ((8, 512, 12, 64), (0, 1)),
        ((8, 512, 12, 64), (1, 3)),
        ((64, 56, 56, 64), (0, 1, 2)),
        ((64, 64, 56, 56), (0, 2, 3)),
        ((1 << 24,), 0),
        ((4096,), 0),
    ]
    for shape, axis in shapes:
        for name, op in of(shape, axis):
            yield Case("reduce", name, op)
    rows = 8192 // shrink
    for name, call in {
        "mean and variance": lambda x: (x.mean(0), ((x - x.mean(0)) ** 2).mean(0)),
        "argmax": lambda x: jnp.argmax(x, 1),
        "bias and gelu": lambda x: (jax.nn.gelu(x), jax.nn.gelu(x).sum(0)),
        "softmax": jax.nn.softmax,
        "norms": lambda x: x / jnp.sqrt((x * x).sum(0) + 1),
    }.items():
        for dtype in (F32, BF16):
            yield Case("reduce", f"{name} {dtype}", Op(call, ((rows, 1024),), (dtype,)))


def scans(shrink: int) -> Iterator[Case]:
    """Cumulative sums, pools."""
    for shape, axis in (
        ((1 << 20,), 0),
        ((8192, 1024), 1),
        ((8192, 1024), 0),
        ((64, 16384), 1),
        ((16, 2048, 256), 1),
        ((65536, 64), 1),
        ((64, 128), 1),
    ):
        sides = (max(shape[0] // shrink, 1), *shape[1:])
        for name, call in (("cumsum", jnp.cumsum), ("cummax", lax.cummax)):
            op = Op(partial(call, axis=axis), (sides,), (F32,))
            yield Case("scan", f"{name} {sides} by {axis}", op)
    image = ((max(64 // shrink, 2), 64, 64, 64),)

    def pooled(x: Any, window: int, stride: int) -> Any:
        sides, steps = (1, window, window, 1), (1, stride, stride, 1)
        return lax.reduce_window(x, -jnp.inf, lax.max, sides, steps, "SAME")

    for window, stride in ((2, 2), (3, 2), (5, 1)):
        op = Op(partial(pooled, window=window, stride=stride), image, (F32,), (0,))
        yield Case("scan", f"pool {window} {stride}, and gradient", op)


def sorts(shrink: int) -> Iterator[Case]:
    """Sorts and largest elements, of long rows and many short ones."""
    for shape in ((1 << 12,), (1 << 16,), (1 << 20,), (1024, 1024), (16384, 64), (64, 16384)):
        sides = (max(shape[0] // shrink, 2), *shape[1:])
        for name, call in (("sort", jnp.sort), ("argsort", jnp.argsort)):
            yield Case("sort", f"{name} {sides}", Op(call, (sides,), (F32,)))
    yield Case(
        "sort", "argsort of integers", Op(jnp.argsort, ((EDGES // shrink,),), ("int:24000",))
    )
    for rows, width, k in ((16384, 64, 2), (8192, 256, 8), (16384, 1024, 20), (64, 50304, 50)):
        op = Op(partial(lax.top_k, k=k), ((max(rows // shrink, 2), width),), (F32,))
        yield Case("sort", f"top {k} of {rows} x {width}", op)


def transforms(shrink: int) -> Iterator[Case]:
    """Fourier transforms by length and dimensions."""
    fewer = max(32 // shrink, 2)
    for shape, axes in (
        ((4096, 1024), (1,)),
        ((256, 16384), (1,)),
        ((65536, 64), (1,)),
        ((64, 1000), (1,)),
        ((32, 64, 128, 128), (2, 3)),
        ((32, 128, 128, 64), (1, 2)),
        ((4, 64, 64, 64), (1, 2, 3)),
    ):
        sides = (max(shape[0] // (32 // fewer), 1), *shape[1:])
        for name, call in (
            ("real", lambda x, axes=axes: jnp.fft.rfftn(x, axes=axes)),
            ("back", lambda x, axes=axes: jnp.fft.irfftn(jnp.fft.rfftn(x, axes=axes), axes=axes)),
        ):
            yield Case("fft", f"{name} {sides} by {axes}", Op(call, (sides,), (F32,)))


def decompositions(shrink: int) -> Iterator[Case]:
    """Decompositions and solutions, of one matrix and of many."""

    def positive(x: Any) -> Any:
        size = x.shape[-1]
        return x @ x.swapaxes(-1, -2) / size + jnp.eye(size)

    def solved(x: Any) -> Any:
        return lax.linalg.triangular_solve(jnp.tril(positive(x)), x, left_side=True, lower=True)

    calls: dict[str, Callable[..., Any]] = {
        "product alone": positive,
        "cholesky": lambda x: jnp.linalg.cholesky(positive(x)),
        "triangular": solved,
        "solve": lambda x: jnp.linalg.solve(positive(x), x),
        "qr": lambda x: jnp.linalg.qr(x)[0],
        "eigh": lambda x: jnp.linalg.eigh(positive(x))[1],
        "svd": lambda x: jnp.linalg.svd(x, full_matrices=False)[1],
    }
    for count, size in ((1, 32), (1, 256), (1, 1024), (64, 32), (64, 128), (1024, 16)):
        for name, call in calls.items():
            if name == "svd" and count * size > 1024:
                continue
            shape = (max(count // shrink, 1), max(size // min(shrink, 4), 4), 0)
            op = Op(call, ((*shape[:2], shape[1]),), (F32,))
            yield Case("decomposition", f"{name} {count} of {size}", op)


# Products and random numbers.


def products(shrink: int) -> Iterator[Case]:
    """Products of models in float32 and bfloat16, as forwards and gradients have them."""
    for tokens, inside, outside in (
        (512, 512, 512),
        (2048, 256, 1024),
        (2048, 512, 512),
        (2048, 1024, 4096),
        (4096, 512, 2048),
        (4096, 768, 3072),
        (8192, 768, 768),
        (8192, 1024, 1024),
        (16384, 256, 1024),
        (16384, 512, 2048),
        (65536, 128, 512),
        (200_000, 64, 128),
    ):
        rows = tokens // shrink
        for dtype in (F32, BF16):
            for name, call, shapes in (
                ("forward", jnp.matmul, ((rows, inside), (inside, outside))),
                ("by input", lambda g, w: g @ w.T, ((rows, outside), (inside, outside))),
                ("by weights", lambda x, g: x.T @ g, ((rows, inside), (rows, outside))),
            ):
                if dtype == BF16 and name != "forward":
                    continue
                op = Op(call, shapes, (dtype, dtype))
                yield Case("product", f"{name} {tokens} {inside} {outside} {dtype}", op)
        biased = Op(
            lambda x, w, b: jax.nn.gelu(x @ w + b),
            ((rows, inside), (inside, outside), (outside,)),
            (F32,) * 3,
        )
        yield Case("product", f"gelu {tokens} {inside} {outside}", biased)
    for batch, m, k, n in (
        (96, 512, 64, 512),
        (96, 512, 512, 64),
        (256, 128, 64, 128),
        (1024, 32, 32, 32),
        (4096, 16, 16, 16),
        (4096, 8, 64, 64),
        (16384, 4, 4, 4),
        (200_000, 1, 8, 16),
        (65536, 3, 3, 3),
        (64, 1, 512, 512),
    ):
        some = max(batch // shrink, 1)
        for dtype in (F32, BF16):
            op = Op(jnp.matmul, ((some, m, k), (some, k, n)), (dtype, dtype))
            yield Case("batched product", f"{batch} {m} {k} {n} {dtype}", op)


def randoms(shrink: int) -> Iterator[Case]:
    """Random numbers, as threefry and as a generator of bits make them."""
    for bits in (12, 18, 22, 25):
        shape = ((1 << bits) // shrink,)
        for name, call in {
            "bits": lambda x: jax.random.bits(jax.random.key(x[0].astype("uint32")), x.shape),
            "normal": lambda x: jax.random.normal(jax.random.key(x[0].astype("uint32")), x.shape),
            "dropout": lambda x: jnp.where(
                jax.random.bernoulli(jax.random.key(x[0].astype("uint32")), 0.9, x.shape), x, 0
            ),
            "generator": lambda x: lax.rng_bit_generator(
                jnp.zeros((4,), "uint32") + x[0].astype("uint32"), x.shape
            ),
        }.items():
            yield Case("random", f"{name} of {shape[0]}", Op(call, (shape,), (F32,)))
    op = Op(
        lambda x: jax.random.permutation(jax.random.key(0), x.shape[0]) + x,
        ((65536 // shrink,),),
        (F32,),
    )
    yield Case("random", "permutation", op)


# Launches.


def _chain(step: Callable[[Any], Any], count: int) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        for _ in range(count):
            x = lax.optimization_barrier(step(x))
        return x

    return call


def _small(x: Any) -> Any:
    return x * 1.5 + 1


def _both(family: str, name: str, op: Op) -> Iterator[Case]:
    """Kernels one by one, and as the compiler would start them."""
    yield Case(family, name, op)
    yield Case(family, name, op, apart=False)


def launches(shrink: int) -> Iterator[Case]:
    """Kernels too small to count, after another: by number, size and kind."""
    yield Case("launch", "nothing", Op(_small, ((8,),), (F32,)))
    many = 300 // shrink
    for count in (10, 100 // shrink, many):
        yield from _both(
            "launch", f"{count} of 1024", Op(_chain(_small, count), ((1024,),), (F32,))
        )
    for size in (1 << 16, 1 << 20, 1 << 22):
        op = Op(_chain(_small, many), ((size,),), (F32,))
        yield from _both("launch", f"{many} of {size}", op)
    sums = _chain(lambda x: x - x.sum(0), many // 2)
    yield from _both("launch", f"{many // 2} sums", Op(sums, ((64, 256),), (F32,)))
    turned = _chain(lambda x: x.T * 2, many)
    yield from _both("launch", f"{many} transposes", Op(turned, ((256, 256),), (F32,)))
    for size in (128, 512):

        def multiplied(x: Any, w: Any) -> Any:
            return _chain(lambda y: jnp.tanh(y @ w), many // 3)(x)

        op = Op(multiplied, ((size, size), (size, size)), (F32,) * 2)
        yield from _both("launch", f"{many // 3} products of {size}", op)
    wide = Op(
        lambda *xs: [_chain(_small, 4)(x) for x in xs],
        ((4096,),) * (many // 6),
        (F32,) * (many // 6),
    )
    yield from _both("launch", f"{many // 6} chains of 4", wide)


def loops(shrink: int) -> Iterator[Case]:
    """Passes of loops by their kernels, counted and asked for; branches."""
    passes = 100 // shrink

    def counted(x: Any, kernels: int, passes: int = passes) -> Any:
        step = _chain(lambda x: x - x.sum() * 1e-3, kernels)
        return lax.fori_loop(0, passes, lambda _, x: step(x), x)

    def asked(x: Any, kernels: int) -> Any:
        step = _chain(lambda x: x - x.sum() * 1e-3, kernels)

        def body(state: Any) -> Any:
            return step(state[0]), state[1] + 1

        return lax.while_loop(lambda s: s[1].max() < passes, body, (x, jnp.zeros((8,))))

    for kernels in (1, 4, 16):
        for name, call in (("counted", counted), ("asked", asked)):
            op = Op(partial(call, kernels=kernels), ((1024,),), (F32,))
            yield from _both("loop", f"{name}, {passes} of {kernels}", op)
    short = Op(partial(counted, kernels=4, passes=max(passes // 10, 2)), ((1024,),), (F32,))
    yield from _both("loop", f"counted, {max(passes // 10, 2)} of 4", short)
    nested = Op(
        lambda x: lax.fori_loop(0, 10, lambda _, x: counted(x, 4, 10), x), ((1024,),), (F32,)
    )
    yield from _both("loop", "counted, 10 of 10 of 4", nested)
    large = Op(partial(counted, kernels=4), ((1 << 20,),), (F32,))
    yield from _both("loop", f"counted, {passes} of 4 of 1048576", large)
    yield from _branches(passes)
    yield from _recurrences(passes)


def _branches(passes: int) -> Iterator[Case]:
    def branch(x: Any) -> Any:
        return lax.cond(x[0] > 0, lambda x: x - x.sum() * 1e-3, lambda x: x * 2, x)

    def switch(x: Any) -> Any:
        ways = [lambda x, n=n: x - x.sum() * n for n in range(4)]
        return lax.switch(x[0].astype("int32") % 4, ways, x)

    for name, step in (("cond", branch), ("switch", switch)):
        op = Op(_chain(step, 30), ((1024,),), (F32,))
        yield from _both("branch", f"30 of {name}", op)
        inside = Op(
            lambda x, step=step: lax.fori_loop(0, passes, lambda _, x: step(x), x),
            ((1024,),),
            (F32,),
        )
        yield from _both("branch", f"{passes} passes of {name}", inside)


def _recurrences(passes: int) -> Iterator[Case]:
    def cell(w: Any, h: Any, x: Any) -> Any:
        h = jnp.tanh(x + h @ w)
        return h, h

    def recurrent(x: Any, w: Any) -> Any:
        return lax.scan(partial(cell, w), x[0], x)[1]

    for size in (64, 256, 1024):
        op = Op(recurrent, ((passes, 32, size), (size, size)), (F32,) * 2)
        yield from _both("loop", f"recurrence of {size}", op)
        op = op._replace(differentiated=(0, 1))
        yield from _both("loop", f"recurrence of {size} and gradients", op)


# Whole steps.


def steps(shrink: int) -> Iterator[Case]:
    """Small training steps, as they would be started."""
    for name, (loss, weights, data, kinds) in _networks(shrink).items():

        def step(*given: Any, loss: Any = loss, many: int = len(weights)) -> Any:
            weights, before, data = given[:many], given[many : 2 * many], given[2 * many :]
            value, slopes = jax.value_and_grad(loss)(weights, *data)
            moments = [0.9 * m + g for m, g in zip(before, slopes, strict=True)]
            return value, [w - 1e-3 * m for w, m in zip(weights, moments, strict=True)], moments

        shapes = (*weights, *weights, *data)
        op = Op(step, shapes, ((F32,) * (2 * len(weights)) + kinds))
        yield Case("step", name, op, apart=False)


def _networks(shrink: int) -> dict[str, Any]:
    """By name the loss, the shapes of weights and data, the types of the data."""
    edges, nodes = EDGES // shrink, NODES // shrink
    spread = (F32, f"int:{nodes}", f"int:{nodes}")
    layered = ((128, 128),) * 8

    def dense(weights: Any, x: Any) -> Any:
        for w in weights:
            x = jnp.tanh(x @ w)
        return (x**2).mean()

    def graph(weights: Any, x: Any, source: Any, target: Any) -> Any:
        for w in weights:
            x = x + jax.nn.relu(_summed(x[source], target, nodes) @ w)
        return (x**2).mean()

    def edged(weights: Any, x: Any, source: Any, target: Any) -> Any:
        for w in weights:
            sent = jax.nn.gelu(jnp.concatenate([x[source], x[target]], -1) @ w)
            x = x + _summed(sent, target, nodes)
        return (x**2).mean()

    def attending(weights: Any, x: Any) -> Any:
        for w in weights:
            q, k, v = jnp.split(x @ w, 3, -1)
            share = jax.nn.softmax(q @ k.swapaxes(-1, -2) / 8)
            x = x + share @ v
            x = x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        return (x**2).mean()

    def convolved(weights: Any, x: Any) -> Any:
        for w in weights:
            numbers = ("NHWC", "HWIO", "NHWC")
            x = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)
            x = jax.nn.relu(x - x.mean((0, 1, 2)))
        return (x**2).mean()

    def recurrent(weights: Any, x: Any) -> Any:
        for w in weights:
            x = lax.scan(lambda h, now, w=w: ((h := jnp.tanh(now + h @ w)), h), x[0], x)[1]
        return (x**2).mean()

    def learned(weights: Any, x: Any) -> Any:
        adapted = weights
        for _ in range(3):
            slopes = jax.grad(dense)(adapted, x)
            adapted = [w - 0.1 * g for w, g in zip(adapted, slopes, strict=True)]
        return dense(adapted, x)

    long = max(1024 // shrink, 8)
    return {
        "dense": (dense, layered, ((long, 128),), (F32,)),
        "dense, many layers": (dense, layered * 4, ((long, 128),), (F32,)),
        "graph": (graph, layered[:3], ((nodes, 128), (edges,), (edges,)), spread),
        "graph of edges": (edged, ((256, 128),) * 2, ((nodes, 128), (edges,), (edges,)), spread),
        "attention": (attending, ((256, 768),) * 4, ((8, long // 2, 256),), (F32,)),
        "convolutions": (convolved, ((3, 3, 32, 32),) * 4, ((long // 32 + 1, 32, 32, 32),), (F32,)),
        "recurrent": (recurrent, ((128, 128),) * 2, ((64, 32, 128),), (F32,)),
        "learning to learn": (learned, layered[:4], ((64, 128),), (F32,)),
    }


FAMILIES = (
    launches,
    scatters,
    messages,
    loops,
    steps,
    gathers,
    reductions,
    products,
    scans,
    sorts,
    decompositions,
    transforms,
    randoms,
)
