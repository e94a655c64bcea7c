"""Takes advice and lets XLA judge: promised bytes against those saved.

    python -m tools.check_advice [--explicit] [PROGRAM...]   (with jax, libtpu and hlomem)

Each program is compiled as it is, advised on from the dump XLA wrote, changed as one advice says,
and compiled again. Rewrites the table in docs/advice.md. Programs for a TPU are compiled for a v5e
that need not be there. Dumps are written with the README's own flags, so that elements of tuples
have no lines; with --explicit they have (`--xla_dump_compact_gte=false`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.advice.advising import advise
from hlomem.api.load import load
from hlomem.base.sizes import format_bytes
from hlomem.report.screens.text import percent
from tools.record_oom import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.dump.dump import Dump

DOCUMENT = Path(__file__).parent.parent / "docs" / "advice.md"
MARKS = ("<!-- table -->\n", "<!-- end of table -->\n")
EXPLICIT_ELEMENTS = "--xla_dump_compact_gte=false"
"""Gives every get-tuple-element a line of its own, which jaxlib 0.11 and later leave out."""
_TIMEOUT_SECONDS = 300


class Jax:
    """jax and where to compile for."""

    def __init__(self, backend: str) -> None:
        self.jax: Any = import_module("jax")
        self.jnp: Any = self.jax.numpy
        self.sharding: Any = None
        if backend == "tpu":
            topologies: Any = import_module("jax.experimental.topologies")
            chips = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2x1").devices
            self.sharding = self.jax.sharding.SingleDeviceSharding(chips[0])

    def array(self, *dimensions: int, dtype: str = "float32") -> Any:
        """The shape of an argument."""
        return self.jax.ShapeDtypeStruct(dimensions, dtype, sharding=self.sharding)

    def layout(self, *major_to_minor: int) -> Any:
        """A layout to take a result in."""
        layout: Any = import_module("jax.experimental.layout")
        return layout.Format(layout.Layout(major_to_minor), self.sharding)


def sgd(x: Jax, *, changed: bool) -> None:
    """A training step; its parameters are donated."""

    def step(params: Any, batch: Any) -> Any:
        def loss(p: Any) -> Any:
            hidden = batch
            for w in p[:-1]:
                hidden = x.jnp.tanh(hidden @ w)
            return x.jnp.mean((hidden @ p[-1]) ** 2)

        return [w - 0.1 * g for w, g in zip(params, x.jax.grad(loss)(params), strict=True)]

    params = [x.array(512, 512)] * 4
    donated = (0,) if changed else ()
    x.jax.jit(step, donate_argnums=donated).lower(params, x.array(128, 512)).compile()


def adam(x: Jax, *, changed: bool) -> None:
    """A training step with two moments; parameters and moments are donated."""

    def step(w: Any, mean: Any, variance: Any, batch: Any) -> Any:
        g = x.jax.grad(lambda v: x.jnp.mean(x.jnp.tanh(batch @ v) ** 2))(w)
        mean = 0.9 * mean + 0.1 * g
        variance = 0.99 * variance + 0.01 * g * g
        return w - 0.1 * mean / (x.jnp.sqrt(variance) + 1e-8), mean, variance

    donated = (0, 1, 2) if changed else ()
    arguments = [*[x.array(1024, 1024)] * 3, x.array(64, 1024)]
    x.jax.jit(step, donate_argnums=donated).lower(*arguments).compile()


def cache(x: Jax, *, changed: bool) -> None:
    """A step of decoding that writes into a cache; the cache and the new entry are donated."""

    def decode(kept: Any, new: Any, position: Any) -> Any:
        kept = x.jax.lax.dynamic_update_slice(kept, new, (0, position, 0))
        scores = x.jax.nn.softmax(x.jnp.einsum("btd,bsd->bts", new, kept))
        return kept, x.jnp.einsum("bts,bsd->btd", scores, kept)

    donated = (0, 1) if changed else ()
    arguments = [x.array(8, 1024, 128), x.array(8, 1, 128), x.array(dtype="int32")]
    x.jax.jit(decode, donate_argnums=donated).lower(*arguments).compile()


def attention(x: Jax, *, changed: bool, wide: str, narrow: str) -> None:
    """Attention with a mask, computed in a narrower type."""
    x.jax.config.update("jax_enable_x64", True)

    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = x.jnp.einsum("bqd,bkd->bqk", q, k)
        return x.jnp.einsum("bqk,bkd->bqd", x.jax.nn.softmax(x.jnp.sort(scores)), v)

    dtype = narrow if changed else wide
    x.jax.jit(attend).lower(*[x.array(8, 256, 128, dtype=dtype)] * 3).compile()


def convolution(x: Jax, *, changed: bool) -> None:
    """A convolution whose result is taken as the chip computes it."""

    def convolve(image: Any, kernel: Any) -> Any:
        axes = ("NCHW", "OIHW", "NCHW")
        return x.jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=axes)

    # The order of the layout that the advice names, from major to minor.
    result = x.layout(2, 3, 0, 1) if changed else None
    compile_ = x.jax.jit(convolve, out_shardings=result)
    compile_.lower(x.array(256, 128, 64, 64), x.array(128, 128, 3, 3)).compile()


def branches(x: Jax, *, changed: bool) -> None:
    """Independent branches, of which only the sums are needed; compiled with another scheduler."""
    del changed  # a flag of the compiler makes the difference

    def network(data: Any, w: Any) -> Any:
        return [x.jnp.sort(x.jnp.tanh(data @ (w + i)), axis=0).sum(axis=0) for i in range(8)]

    x.jax.jit(network).lower(x.array(512, 256), x.array(256, 256)).compile()


class Case(NamedTuple):
    """A program, the advice to take, and the flags that take it."""

    program: Callable[..., None]
    backend: str
    rule: str
    flags: str = ""


_SCHEDULER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
CASES = {
    "sgd": Case(sgd, "cpu", "donate"),
    "adam": Case(adam, "cpu", "donate"),
    "cache": Case(cache, "cpu", "donate"),
    "attention": Case(partial(attention, wide="float64", narrow="float32"), "cpu", "narrow"),
    "branches": Case(branches, "cpu", "order", _SCHEDULER),
    "tpu-sgd": Case(sgd, "tpu", "donate"),
    "tpu-adam": Case(adam, "tpu", "donate"),
    "tpu-cache": Case(cache, "tpu", "donate"),
    "tpu-attention": Case(partial(attention, wide="float32", narrow="bfloat16"), "tpu", "narrow"),
    "tpu-convolution": Case(convolution, "tpu", "layout"),
}


def compile_case(name: str, folder: str, *, changed: bool, explicit: bool = False) -> None:
    """Lets XLA write into a folder, compiling in a process of its own."""
    case = CASES[name]
    flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
    flags += f" {EXPLICIT_ELEMENTS}" if explicit else ""
    environment = os.environ | ENVIRONMENT["tpu"] | {"XLA_FLAGS": f"{flags} {case.flags * changed}"}
    side = "after" if changed else "before"
    line = [sys.executable, "-m", "tools.check_advice", name, side]
    subprocess.run(line, check=True, env=environment, timeout=_TIMEOUT_SECONDS)


def dump_in(folder: Path) -> tuple[Dump, Path]:
    """The largest dump of a folder, and its file."""
    files = sorted(folder.glob("*after_optimizations-buffer-assignment.txt"))
    largest = max(files, key=lambda path: path.stat().st_size)
    return load(largest), largest


def reserved(dump: Dump) -> int:
    """What a dump reserves in the default memory space."""
    assert dump.assignment is not None
    return sum(each.size for each in dump.assignment.allocations if each.color == 0)


def check(name: str, *, explicit: bool = False) -> str:
    """One row of the table."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        compile_case(name, first, changed=False, explicit=explicit)
        compile_case(name, second, changed=True, explicit=explicit)
        dump, _ = dump_in(Path(first))
        after, _ = dump_in(Path(second))
        module = dump.module  # read while its file is there
    chip = "v5e" if case.backend == "tpu" else ""
    advised = advise(dump, module=module, backend=case.backend, chip=chip)
    given = [each for each in advised.advice if each.rule == case.rule]
    before = reserved(dump)
    saved = before - reserved(after)
    title, promised = (given[0].title, given[0].saves) if given else ("(none)", 0)
    kept = percent(saved, promised) if promised else "-"
    sizes = [format_bytes(size) for size in (before, promised, saved)]
    print(name, title, before, promised, saved, file=sys.stderr)
    return f"| {name} | {title} | {' | '.join(sizes)} | {kept} |\n"


def main(arguments: list[str]) -> None:
    """One side of a case, or the table of all or of those named."""
    if arguments[1:] and arguments[1] in {"before", "after"}:
        case = CASES[arguments[0]]
        case.program(Jax(case.backend), changed=arguments[1] == "after")
        return
    explicit = "--explicit" in arguments
    arguments = [each for each in arguments if each != "--explicit"]
    rows = "".join(check(name, explicit=explicit) for name in arguments or CASES)
    head = "| program | advice taken | reserved | promised | saved by XLA | kept |\n"
    table = f"{head}|---|---|---:|---:|---:|---:|\n{rows}"
    if arguments or explicit:
        print(table)
        return
    text = DOCUMENT.read_text()
    start, end = text.index(MARKS[0]) + len(MARKS[0]), text.index(MARKS[1])
    DOCUMENT.write_text(text[:start] + table + text[end:])


if __name__ == "__main__":
    main(sys.argv[1:])
