"""Measures on a GPU what the model of time needs, and the time of programs to hold it against.

    python -m tools.calibrate_clock FILE [--seconds 280] [--small]

Single kernels (matrix products, convolutions, elementwise operations, reductions, transposes,
gathers), launches, copies to the host and back, alone and beside work; then training steps of
`tools.programs.large` as XLA orders them, as `optimize()` and as a budget of half their temporaries
leaves them, each with the module its compiler had, its time, and that of its kernels by the
profiler. FILE is written after every part; a part that fails says so there, and the next begins. No
program is begun once the seconds are over. `--small` shrinks everything, to try the script itself.
"""

from __future__ import annotations

import argparse
import base64
import json
import statistics
import sys
import time
import zlib
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
lax: Any = import_module("jax.lax")

COPIES = 8
"""How often one kernel stands in a program, each on data of its own or after the other."""
MAX_BYTES = 12 << 20
"""Of modules in the file."""
MIN_SECONDS = 0.06
"""For which one program is run, after it ran twice."""
MAX_RUNS = 30
FIRST = """
    gpt_adam_donate resnet_train unet_train gpt_scan_adam_donate lstm_train vit_train
    mlp_adam_donate experts_train dense_blocks gpt_train gpt_scan pairs_train gpt_scan_remat
    adversaries gpt_remat learn_to_learn gpt_accumulate slope gpt_remat_adam_donate
"""
Row = dict[str, Any]


class Timed(NamedTuple):
    """Seconds of a run."""

    least: float
    median: float


def timed(call: Callable[[], Any], seconds: float = MIN_SECONDS) -> Timed:
    """How long a call takes until what it returns is there."""
    for _ in range(2):
        jax.block_until_ready(call())
    found: list[float] = []
    while sum(found) < seconds and len(found) < MAX_RUNS:
        start = time.perf_counter()
        jax.block_until_ready(call())
        found.append(time.perf_counter() - start)
    return Timed(min(found), statistics.median(found))


def made(shape: Sequence[int], dtype: str, seed: int = 0) -> Any:
    """Numbers that are all others."""
    key = jax.random.key(seed)
    if dtype == "int32":
        return jax.random.randint(key, shape, 0, 1000)
    return jax.random.normal(key, shape, "float32").astype(dtype)


def row(kind: str, call: Any, *arguments: Any, count: int = COPIES, **said: Any) -> Row:
    """One kind of kernel: seconds of one of `count` in a program."""
    compiled = jax.jit(call).lower(*arguments).compile()
    found = timed(partial(compiled, *arguments))
    return {
        "kind": kind,
        "least": found.least / count,
        "median": found.median / count,
        "count": count,
        **said,
    }


def chain(step: Callable[[Any], Any], x: Any, count: int = COPIES) -> Any:
    """A step after itself, not fused with itself."""
    for _ in range(count):
        x = lax.optimization_barrier(step(x))
    return x


# Kernels.


def products(shrink: int) -> Iterator[Row]:
    """Matrix products by type and size."""
    shapes = [
        (1, 8192, 8192, 8192),
        (1, 16384, 2048, 2048),
        (1, 16384, 512, 2048),
        (1, 16384, 512, 512),
        (1, 4096, 1024, 1024),
        (1, 2048, 512, 512),
        (1, 512, 512, 512),
        (1, 512, 16384, 512),
        (1, 16384, 512, 8192),
        (1, 64, 4096, 4096),
        (256, 512, 64, 512),
        (256, 512, 512, 64),
        (1024, 64, 64, 64),
    ]
    kinds = [("bfloat16", None, shapes), ("float32", None, shapes), ("float32", "highest", shapes)]
    for dtype, precision, some in kinds:
        for batch, rows, inner, columns in some[:: 4 if precision else 1]:
            m, k, n = (max(side // shrink, 16) for side in (rows, inner, columns))
            left = [made((batch, m, k), dtype, seed) for seed in range(COPIES)]
            right = [made((batch, k, n), dtype, seed) for seed in range(COPIES)]

            def call(left: Any, right: Any, precision: Any = precision) -> Any:
                pairs = zip(left, right, strict=True)
                return [jnp.matmul(a, b, precision=precision) for a, b in pairs]

            said: Row = {"dtype": dtype, "shape": [batch, m, k, n]}
            said["precision"] = precision or "default"
            yield row("product", call, left, right, **said)


def convolutions(shrink: int) -> Iterator[Row]:
    """Convolutions, and both their gradients."""
    shapes = [
        (64, 56, 64, 64, 3, 1),
        (64, 28, 128, 128, 3, 1),
        (64, 14, 256, 256, 3, 1),
        (64, 56, 64, 256, 1, 1),
        (64, 224, 3, 64, 7, 2),
        (16, 128, 64, 32, 3, 1),
    ]
    for dtype in ("float32", "bfloat16"):
        for batch, side, inside, outside, window, stride in shapes[
            :: 2 if dtype != "float32" else 1
        ]:
            side_, batch_ = max(side // shrink, 8), max(batch // shrink, 2)
            x = made((batch_, side_, side_, inside), dtype)
            w = made((window, window, inside, outside), dtype)

            def convolve(x: Any, w: Any, stride: int = stride) -> Any:
                numbers = ("NHWC", "HWIO", "NHWC")
                strides = (stride, stride)
                return lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=numbers)

            g = made(jax.eval_shape(convolve, x, w).shape, dtype)
            said = {"dtype": dtype, "x": x.shape, "w": w.shape, "stride": stride}
            yield row("convolution", convolve, x, w, count=1, **said)

            def by_input(x: Any, w: Any, g: Any, convolve: Any = convolve) -> Any:
                return jax.vjp(lambda x: convolve(x, w), x)[1](g)

            def by_filter(x: Any, w: Any, g: Any, convolve: Any = convolve) -> Any:
                return jax.vjp(lambda w: convolve(x, w), w)[1](g)

            yield row("convolution by input", by_input, x, w, g, count=1, **said)
            yield row("convolution by filter", by_filter, x, w, g, count=1, **said)


def passes(shrink: int) -> Iterator[Row]:
    """Elementwise operations: bytes read and written once."""
    for bits in (12, 15, 18, 20, 21, 22, 24, 26, 28):
        for dtype, width in (("float32", 4), ("bfloat16", 2)):
            if width == 2 and bits % 2:
                continue
            x = made(((1 << bits) // shrink // width,), dtype)
            yield row("add", partial(chain, lambda x: x + 1), x, bytes=2 * x.nbytes, dtype=dtype)
    x = made(((1 << 27) // shrink // 4,), "float32")
    for name, step in (("tanh", jnp.tanh), ("gelu", jax.nn.gelu), ("exp", jnp.exp)):
        yield row(name, partial(chain, step), x, bytes=2 * x.nbytes, dtype="float32")
    for count in (2, 4, 8):
        some = [made(x.shape, "float32", seed) for seed in range(count)]
        yield row(f"sum of {count}", sum, some, count=1, bytes=(count + 1) * x.nbytes)


def reductions(shrink: int) -> Iterator[Row]:
    """Reductions of rows, of columns, of all, and what normalizes."""
    for rows, columns in ((16384, 512), (16384, 8192), (262144, 64), (512, 16384)):
        x = made((rows // shrink, columns), "float32")
        said = {"bytes": x.nbytes, "shape": x.shape}
        others = [made(x.shape, "float32", seed) for seed in range(COPIES)]
        for name, axis in (("rows", 1), ("columns", 0), ("all", None)):

            def call(some: Any, axis: Any = axis) -> Any:
                return [lax.optimization_barrier((x * x).sum(axis)) for x in some]

            yield row(f"sum of {name}", call, others, **said)
        yield row("softmax", partial(chain, jax.nn.softmax), x, **said)


def rearrangements(shrink: int) -> Iterator[Row]:
    """Transposes, gathers, scatters, slices, sorts."""
    for rows, columns in ((8192, 8192), (16384, 512), (1024, 1024)):
        x = made((rows // shrink, columns // shrink), "float32")
        xs = [made(x.shape, "float32", seed) for seed in range(COPIES)]

        def transposed(xs: Any) -> Any:
            return [lax.optimization_barrier(x.T.copy()) for x in xs]

        yield row("transpose", transposed, xs, bytes=2 * x.nbytes)
    heads = made((32, 512, 8, 64), "float32")
    yield row(
        "transpose of heads",
        lambda x: lax.optimization_barrier(x.transpose(0, 2, 1, 3)),
        heads,
        count=1,
        bytes=2 * heads.nbytes,
    )
    table, places = made((50304 // shrink, 512), "float32"), made((16384,), "int32")
    wide = made((16384, 512), "float32")
    yield row("gather", lambda t, i: t[i], table, places, count=1, bytes=2 * wide.nbytes)
    yield row(
        "scatter", lambda t, i, x: t.at[i].add(x), table, places, wide, count=1, bytes=wide.nbytes
    )
    row_of = made(((1 << 22) // shrink,), "float32")
    yield row("sort", jnp.sort, row_of, count=1, bytes=2 * row_of.nbytes)


def launches(_: int) -> Iterator[Row]:
    """Kernels too small to count, in one program, and passes of a loop."""
    x = made((1024,), "float32")
    for count in (1, 10, 100, 400):
        step = partial(chain, lambda x: x * 1.5 + x.sum(), count=count)
        yield row("launch", step, x, count=1, kernels=count)
    for count in (10, 100, 1000):

        def loop(x: Any, count: int = count) -> Any:
            return lax.fori_loop(0, count, lambda _, x: x * 1.5 + x.sum(), x)

        yield row("loop", loop, x, count=1, passes=count)
    for count in (10, 100):

        def search(x: Any, count: int = count) -> Any:
            state = lax.while_loop(lambda s: s[1].max() < count, lambda s: (s[0], s[1] + 1), x)
            return state[1]

        yield row("search", search, (x, jnp.zeros((8,))), count=1, passes=count)


# The host's memory.


def _on_host() -> tuple[Any, Any]:
    sharding: Any = import_module("jax.sharding")
    device = jax.devices()[0]
    host = sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    return host, sharding.SingleDeviceSharding(device, memory_kind="device")


def copies(shrink: int) -> Iterator[Row]:
    """Copies to the host and back, alone and while something is computed."""
    host, device = _on_host()
    for bits in (16, 20, 24, 27, 30):
        x = made(((1 << bits) // shrink // 4,), "float32")
        away = jax.block_until_ready(jax.device_put(x, host))
        out = timed(partial(jax.device_put, x, host))
        back = timed(partial(jax.device_put, away, device))
        for kind, found in (("to host", out), ("from host", back)):
            yield {"kind": kind, "bytes": x.nbytes, **found._asdict()}
    x = made(((1 << 28) // shrink // 4,), "float32")
    w = made((4096 // shrink, 4096 // shrink), "bfloat16")

    def work(w: Any, count: int) -> Any:
        return lax.fori_loop(0, count, lambda _, y: (y @ w).astype(w.dtype), w)

    def trip(x: Any, w: Any, count: int) -> Any:
        away = jax.device_put(x * 2, host)
        done = [w := jnp.tanh(w @ w) for _ in range(count)][-1] if count else w
        away, done = lax.optimization_barrier((away, done))
        return jax.device_put(away, device) + 1, done

    for count in (0, 8, 64):
        yield row("trip", partial(trip, count=count), x, w, count=1, bytes=x.nbytes, products=count)
    yield row("work", partial(work, count=64), w, count=1, products=64)


# Programs.


def kernels_of(call: Callable[[], Any]) -> dict[str, list[float]]:
    """By instruction: seconds in all, and kernels, by the profiler."""
    found: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            call()
        for file in Path(folder).rglob("*.xplane.pb"):
            for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
                if "GPU" in plane.name:
                    _add_kernels(plane, found)
    return found


def _add_kernels(plane: Any, found: dict[str, list[float]]) -> None:
    for line in plane.lines:
        for event in line.events:
            said = {str(name): value for name, value in event.stats}
            name = str(said.get("hlo_op") or f"? {event.name}")
            if "hlo_op" not in said and not line.name.startswith("Stream"):
                continue
            known = found.setdefault(name, [0.0, 0])
            known[0] += event.duration_ns / 1e9
            known[1] += 1


class Caught:
    """A pass between the compiler and another that keeps the largest module of both."""

    def __init__(self, change: Callable[[bytes], bytes | None]) -> None:
        self._change = change
        self.module = b""

    def __call__(self, proto: bytes) -> bytes | None:
        """The other's answer."""
        proto = bytes(proto)
        answer = self._change(proto)
        module = proto if answer is None else answer
        if len(module) > len(self.module):
            self.module = module
        return answer


def _ways(platform: str, limit: Callable[[], int]) -> Iterator[tuple[str, Any]]:
    """What is done to a program: nothing, an order and what is cheap, a budget."""
    limits_of: Any = import_module("hlomem.jax.pass_.limits")
    transform: Any = import_module("hlomem.jax.pass_.transform")
    register: Any = import_module("hlomem.jax.pass_.register")
    goal: Any = import_module("hlomem.opt.goal")
    budget: Any = import_module("hlomem.machines.budget")
    yield "plain", lambda _: None
    options = register.compiler_options(platform, "h200" if platform == "cuda" else "")
    rules = goal.Rules("default", may_reorder_collectives=True, recompute=0.02)
    limits = limits_of.Limits(1 << 16, 50_000)
    yield "optimize", transform.Transform(platform, options, rules, limits)
    limits = limits._replace(budget=budget.MemoryBudget(limit()), offload=False)
    yield "half", transform.Transform(platform, options, rules._replace(effort="low"), limits)


def steps(name: str, shrink: int) -> Iterator[Row]:
    """One training step, every way."""
    del shrink
    hook: Any = import_module("hlomem.jax.pass_.hook")
    log: Any = import_module("hlomem.jax.pass_.log")
    orders: Any = import_module("tools.run_gpu_orders")
    extension: Any = import_module("jax.extend.xla")
    program = import_module("tools.programs.large").LARGE_PROGRAMS[name]
    platform = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
    arguments = orders._random_arguments(program)
    sizes: list[Any] = []
    for way, change in _ways(platform, lambda: orders._limit(sizes[0], 0.5)):
        caught = Caught(change)
        log.forget()
        jax.clear_caches()
        hook.put_pass(extension, caught, "hlomem-calibration", platform)
        start = time.perf_counter()
        try:
            jitted = jax.jit(program.function, donate_argnums=program.donated)
            compiled = jitted.lower(*program.arguments).compile()
        finally:
            hook.clear_pass(extension, "hlomem-calibration", platform)
        took = time.perf_counter() - start
        sizes.append(compiled)
        runs = [orders._run(compiled, program, arguments)[1] for _ in range(9)]
        said: Row = {
            "kind": "step",
            "name": name,
            "way": way,
            "least": min(runs[2:]),
            "median": statistics.median(runs[2:]),
            "compile": took,
            "temporaries": compiled.memory_analysis().temp_size_in_bytes,
            "outcome": str(max(log.report_since(0).outcomes, key=lambda o: o.before, default="")),
            "module": base64.b85encode(zlib.compress(caught.module, 9)).decode(),
        }
        try:
            said["kernels"] = kernels_of(partial(orders._run, compiled, program, arguments))
        except Exception as error:  # noqa: BLE001 - the time of the whole is known anyway
            said["kernels failed"] = _said(error)
        yield said


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:1000]


class Book:
    """The file, written after every part."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = time.monotonic()
        self.rows: list[Row] = []
        device = jax.devices()[0]
        self._head = {"jax": jax.__version__, "device": device.device_kind, "failures": {}}

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def add(self, name: str, part: Callable[[], Iterator[Row]], until: float) -> None:
        """Measure a part, or what there is time for."""
        try:
            for found in part():
                self.rows.append({**found, "at": round(self.seconds, 1)})
                if self.seconds > until:
                    break
        except Exception as error:  # noqa: BLE001 - the next part may work
            self._head["failures"][name] = _said(error)
            print(f"{name}: {_said(error)}", file=sys.stderr, flush=True)
        self._write()
        print(f"{name}: {len(self.rows)} rows, {self.seconds:.0f} s", file=sys.stderr, flush=True)

    def _write(self) -> None:
        left = MAX_BYTES
        for one in self.rows:
            left -= len(one.get("module", ""))
            if left < 0:
                one.pop("module", None)
        said = {**self._head, "seconds": self.seconds, "rows": self.rows}
        self._path.write_text(json.dumps(said, default=str))


PARTS = (launches, passes, reductions, rearrangements, copies, convolutions, products)
"""Shorter ones first; each may take as long as all up to it have a share of."""
SHARE_OF_KERNELS = 0.45


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all parts, then programs while there is time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=280.0)
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args(arguments)
    shrink = 16 if given.small else 1
    book = Book(given.file)
    for number, part in enumerate(PARTS, 1):
        until = given.seconds * SHARE_OF_KERNELS * number / len(PARTS)
        book.add(part.__name__, partial(part, shrink), until)
    for name in FIRST.split():
        if book.seconds > given.seconds - 20:
            break
        book.add(name, partial(steps, name, shrink), given.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
