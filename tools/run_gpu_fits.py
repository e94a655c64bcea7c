"""Runs training steps on a GPU plain, with `optimize()` and fitted to half: bytes, time, results.

    python -m tools.run_gpu_fits PROGRAMS.py FILE [--seconds 580] [--gpt2 270] [--only NAME …]
                                 [--min-bytes 200000000] [--share 0.5] [--jobs 10]
                                 [--modules FOLDER]

PROGRAMS.py has a dictionary `PROGRAMS`: by name a function that returns a function, its arguments
(shapes) and the options of `jax.jit`, with the attributes `tags`, `multi`, `x64`, `needs` and
`backends`. Those for one GPU are looked at, those with `xl` or a word of training among their tags
first; what has fewer temporaries than `--min-bytes`, or no gradient, is passed over. `--jobs`
processes compile, each its share of the programs; once all have ended, or most of the time is
over, the programs are run, one process after another, with nothing else on the GPU. FILE is
written after each program; one that fails or hangs is named there with its error. `--modules` keeps
the modules as XLA schedules them, for `tools.search_modules`. `--gpt2 SECONDS` of the time go to
one GPT-2 step at six budgets, beside PyTorch's (`tools/gpt2_budgets.py`); 0 leaves it out.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, Any

from tools.indexed import index_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Row = dict[str, Any]
RUNS = 9
MAX_SECONDS = 400.0
"""That one program may take before its process is ended."""
RUN_SHARE = 0.4
"""Of the time, for the runs after the compiles."""
_MAX_WORD = 64
"""Below which integers lie that index nothing."""
_CHOSEN = 1_000_003
"""Random numbers: a prime, so that few rows of an array are alike."""
MARK = "@@"
"""Before a line that a child says to its parent."""
_SQUARES = frozenset({"acc", "nu", "sq", "v", "var"})
"""Names of states that hold squares."""
_GRADIENT = "transpose(jvp"
"""In the names of what JAX's gradients compute."""
_TRAINING = (
    "adam",
    "train",
    "grad",
    "lion",
    "sgd",
    "momentum",
    "lamb",
    "adafactor",
    "bptt",
    "optim",
)


# The child: one program after another.


def load(path: Path) -> dict[str, Any]:
    """The programs of a file."""
    spec = importlib.util.spec_from_file_location("programs_to_run", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.PROGRAMS
    return found


def runs_here(build: Any) -> bool:
    """Whether a program is for one GPU."""
    return not build.multi and "gpu" in build.backends and not build.x64


def made_bytes(jaxpr: Any) -> int:
    """Bytes of all that a program computes: more than its temporaries can take."""
    total = 0
    for equation in jaxpr.eqns:
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        inside = [made_bytes(one) for one in _inside(equation.params.values())]
        total += times * sum(inside)
        total += sum(getattr(one.aval, "size", 0) * 4 for one in equation.outvars)
    return total


def _inside(values: Any) -> Iterator[Any]:
    for value in values:
        if hasattr(value, "eqns"):
            yield value
        elif hasattr(value, "jaxpr"):
            yield value.jaxpr
        elif isinstance(value, tuple | list):
            yield from _inside(value)


def random_arguments(shapes: Any, bounds: Sequence[int | None], jax: Any) -> Any:
    """Numbers for the arguments of a program, the same few over and over; integers below bounds."""
    numpy: Any = import_module("numpy")
    chosen = numpy.random.default_rng(0)
    normal = 0.02 * chosen.standard_normal(_CHOSEN, dtype="float32")
    words = chosen.integers(0, 1 << 62, _CHOSEN)
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)

    def made(number: int, path: Any, leaf: Any) -> Any:
        kind = leaf.dtype.kind
        below = bounds[number] or _MAX_WORD
        if kind in "iu":
            below = min(below, int(numpy.iinfo(leaf.dtype).max))
        values = words % below if kind in "iub" else normal
        values = numpy.resize(numpy.roll(values, number), leaf.shape)
        names = {str(getattr(part, "key", "")) for part in path}
        values = values % 2 if kind == "b" else abs(values) if names & _SQUARES else values
        return jax.device_put(values.astype(leaf.dtype))

    numbered = [made(number, path, leaf) for number, (path, leaf) in enumerate(leaves)]
    return jax.tree_util.tree_unflatten(tree, numbered)


def run(compiled: Any, arguments: Sequence[Any], donated: Sequence[int], jax: Any) -> Any:
    """The results, and seconds; arguments that are given away are copied before."""
    given = [
        jax.tree.map(jax.numpy.copy, argument) if number in donated else argument
        for number, argument in enumerate(arguments)
    ]
    jax.block_until_ready(given)
    start = time.perf_counter()
    results = jax.block_until_ready(compiled(*given))
    return results, time.perf_counter() - start


def gap(one: Any, other: Any, jax: Any) -> float:
    """The largest difference of a result, as a share of the largest number in it."""
    jnp = jax.numpy

    def apart(a: Any, b: Any) -> Any:
        a, b = (jnp.nan_to_num(x.astype("float32"), posinf=0, neginf=0) for x in (a, b))
        return jnp.max(jnp.abs(a - b), initial=0.0) / jnp.maximum(
            jnp.max(jnp.abs(a), initial=0), 1e-30
        )

    return max((float(x) for x in jax.tree.leaves(jax.tree.map(apart, one, other))), default=0.0)


def limit_of(compiled: Any, share: float) -> int:
    """Bytes of all allocations with a share of the temporaries."""
    sizes = compiled.memory_analysis()
    rest = sizes.argument_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return int(rest + share * sizes.temp_size_in_bytes)


def compile_plain(jitted: Any, arguments: Any, file: Path | None, jax: Any) -> tuple[Any, float]:
    """The program as XLA orders it, and its modelled time in seconds; the module is kept."""
    hook: Any = import_module("hlomem.jax.pass_.hook")
    cost: Any = import_module("hlomem.opt.orders.cost")
    registry: Any = import_module("hlomem.machines.registry")
    speeds: Any = import_module("hlomem.opt.orders.speeds")
    proto: Any = import_module("hlomem.proto.module")
    extension = import_module("jax.extend.xla")
    seen: list[bytes] = []
    platform = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
    hook.put_pass(extension, lambda module: seen.append(bytes(module)), "hlomem-seen", platform)
    try:
        plain = jitted.lower(*arguments).compile()
    finally:
        hook.clear_pass(extension, "hlomem-seen", platform)
    handed = max(seen, key=len, default=b"")
    if file is not None:
        file.write_bytes(gzip.compress(handed))
    module = proto.read_module(handed)
    modelled = cost.module_time(module, registry.find_machine("gpu", "h200"))
    return plain, modelled / speeds.H200.bandwidth


def compile_all(
    name: str, build: Any, given: argparse.Namespace
) -> tuple[Row, Callable[[], Row] | None]:
    """One program, every way, and what runs them; None for one that is passed over."""
    jax: Any = import_module("jax")
    function, shapes, options = build()
    jaxpr = jax.make_jaxpr(function)(*shapes).jaxpr
    if made_bytes(jaxpr) < given.min_bytes:
        return {"name": name, "skipped": "small"}, None
    jitted = jax.jit(function, **options)
    file = given.modules and given.modules / f"{name}.pb.gz"
    start = time.perf_counter()
    plain, modelled = compile_plain(jitted, shapes, file, jax)
    before = plain.memory_analysis().temp_size_in_bytes
    said: Row = {
        "name": name,
        "before": before,
        "compile": time.perf_counter() - start,
        "modelled": modelled,
    }
    if before < given.min_bytes:
        return {**said, "skipped": "small"}, None
    if _GRADIENT not in plain.as_text():
        return {**said, "skipped": "no gradient"}, None
    ways = {"plain": plain}
    limits = {"optimize": None, "half": limit_of(plain, given.share)}
    for way, limit in limits.items():
        said[way] = _compile(way, limit, jitted, shapes, ways, jax)
    donated = options.get("donate_argnums", ())
    bounds = index_bounds(jaxpr)
    return said, partial(_run_all, said, ways, shapes, bounds, donated, jax)


def _compile(
    way: str, limit: int | None, jitted: Any, shapes: Any, ways: dict[str, Any], jax: Any
) -> Row:
    """One way to compile a program, and what the pass says of it."""
    hlomem_jax: Any = import_module("hlomem.jax")
    log: Any = import_module("hlomem.jax.pass_.log")
    log.forget()
    jax.clear_caches()
    start = time.perf_counter()
    with hlomem_jax.optimize(fit=limit) as optimization:
        ways[way] = jitted.lower(*shapes).compile()
    took = time.perf_counter() - start
    outcome = max(optimization.report().outcomes, key=lambda found: found.before)
    return {
        "after": ways[way].memory_analysis().temp_size_in_bytes,
        "forecast": outcome.after,
        "in_all": limit_of(ways[way], 1.0),
        "limit": limit,
        "modelled_ratio": outcome.time_ratio,
        "search": outcome.seconds,
        "compile": took,
        "says": f"{outcome}; {outcome.reason}",
        "floor": outcome.floor,
        "slower": outcome.slower,
    }


def _run_all(
    said: Row,
    ways: dict[str, Any],
    shapes: Any,
    bounds: Sequence[int | None],
    donated: Any,
    jax: Any,
) -> Row:
    """Results and times of all ways, taken in turns."""
    donated = (donated,) if isinstance(donated, int) else donated
    arguments = random_arguments(shapes, bounds, jax)
    first = run(ways["plain"], arguments, donated, jax)[0]
    own = gap(first, run(ways["plain"], arguments, donated, jax)[0], jax)
    for way in ("optimize", "half"):
        said[way]["gap"] = gap(first, run(ways[way], arguments, donated, jax)[0], jax)
    del first
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(RUNS):
        for way, compiled in ways.items():
            times[way].append(run(compiled, arguments, donated, jax)[1])
    usual = statistics.median(times["plain"])
    for way in ("optimize", "half"):
        said[way]["ratio"] = statistics.median(times[way]) / usual
        said[way]["least_ratio"] = min(times[way]) / min(times["plain"])
    return {**said, "own_gap": own, "seconds": usual, "least": min(times["plain"])}


def work(given: argparse.Namespace) -> None:
    """Compile programs while there is time, wait for a word, run them; a line for each."""
    programs = load(given.programs)
    ready: list[tuple[str, Callable[[], Row]]] = []

    def say(row: Row) -> None:
        print(f"{MARK}{json.dumps(row, default=str)}", flush=True)

    def attempt(name: str, step: Callable[[], Any]) -> Any:
        say({"begun": name})
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - the next may work
            say({"name": name, "error": f"{type(error).__name__}: {error}"[:2000]})
            return None

    for name in given.work:
        if time.time() > given.until:
            say({"name": name, "error": "no time was left to compile it"})
            continue
        made = attempt(name, partial(compile_all, name, programs[name], given))
        if made is not None and made[1] is None:
            say(made[0])
        elif made is not None:
            ready.append((name, made[1]))
    say({"ready": [name for name, _ in ready]})
    sys.stdin.readline()
    for name, run_it in ready:
        row = attempt(name, run_it)
        if row is not None:
            say(row)
    os._exit(0)


# The parent.


class Child:
    """A process that measures programs, and the lines it prints."""

    def __init__(self, command: Sequence[str]) -> None:
        quiet = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **quiet},
        )
        self._lines: Queue[str | None] = Queue()
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                self._lines.put(line.removeprefix(MARK))
        self._lines.put(None)

    def next(self, seconds: float) -> Row | None:
        """What it says next; None once it has ended. `TimeoutError` where it says nothing."""
        try:
            line = self._lines.get(timeout=max(seconds, 0.1))
        except Empty:
            raise TimeoutError from None
        found: Row | None = None if line is None else json.loads(line)
        return found

    def tell(self, line: str = "") -> None:
        """Say that it may go on, or with what."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Compiling:
    """A share of the programs: compiled by a child that then waits, and run by it."""

    def __init__(
        self, names: Sequence[str], start: Callable[[Sequence[str]], Child], until: float
    ) -> None:
        self._left = list(names)
        self._start = start
        self._until = until
        self.child: Child | None = None
        """Set once it is ready."""
        self.rows: list[Row] = []
        """Of those that failed or were passed over."""

    def compile(self) -> None:
        """Until a child is ready; one that dies or hangs is replaced, without what ended it."""
        while self._left:
            child, begun = self._start(self._left), self._left[0]
            try:
                while (row := child.next(MAX_SECONDS)) is not None:
                    begun = row.get("begun", begun)
                    if "name" in row:
                        self._drop(row)
                    if "ready" in row:
                        self.child = child
                        return
            except TimeoutError:
                pass
            child.end()
            self._drop({"name": begun, "error": "its process ended, or took too long"})
            if time.time() > self._until:
                return

    def _drop(self, row: Row) -> None:
        self.rows.append(row)
        self._left.remove(row["name"])

    def run(self) -> Iterator[Row]:
        """Rows of what was compiled, each or its failure."""
        child = self.child
        if child is None:
            return
        child.tell()
        try:
            while (row := child.next(MAX_SECONDS)) is not None:
                if "name" in row:
                    self._left.remove(row["name"])
                    yield row
        except TimeoutError:
            pass
        finally:
            child.end()
        yield from [{"name": name, "error": "its process ended"} for name in self._left]


def iter_run(
    names: Sequence[str], command: Sequence[str], jobs: int, until: float
) -> Iterator[Row]:
    """Rows of programs: compiled by several processes at once, then run one after another."""
    last = time.time() + (1 - RUN_SHARE) * (until - time.monotonic())
    given = [*command[:-1], "--until", str(last), command[-1]]
    shares = [
        Compiling(names[place::jobs], lambda left: Child([*given, *left]), last)
        for place in range(min(jobs, len(names)))
    ]
    threads = [Thread(target=share.compile, daemon=True) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for share in shares:
        yield from share.rows
    for share in shares:
        yield from share.run()


def iter_rows(
    names: Sequence[str],
    start: Callable[[Sequence[str]], Child],
    until: float,
    patience: float = MAX_SECONDS,
) -> Iterator[Row]:
    """Rows of programs, each or its failure; a child that dies or hangs is replaced."""
    left = list(names)
    while left and time.monotonic() < until:
        child, begun = start(left), ""
        try:
            while True:
                row = child.next(min(patience, until - time.monotonic()))
                if row is None:
                    break
                if "begun" in row:
                    begun = row["begun"]
                    continue
                if "part" not in row:
                    left.remove(row["name"])
                    begun = ""
                yield row
        except TimeoutError:
            pass
        finally:
            child.end()
        if left and time.monotonic() < until:
            failed = begun or left[0]
            left.remove(failed)
            yield {"name": failed, "error": "its process ended, or took too long"}


def table(rows: Sequence[Row]) -> str:
    """The programs that ran, and what they come to."""
    lines = [
        "| program | XLA | optimize() | time | modelled | half | time | modelled | results apart |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    ran = [row for row in rows if "seconds" in row]
    for row in ran:
        parts = []
        for way in ("optimize", "half"):
            one = row[way]
            size = f"{one['after'] / row['before']:.3f}"
            parts += [size, f"{one['ratio']:.3f}×", f"{one['modelled_ratio']:.3f}×"]
        apart = (
            f"{row['optimize']['gap']:.1e}, {row['half']['gap']:.1e}; XLA's {row['own_gap']:.1e}"
        )
        lines.append(f"| {row['name']} | {row['before']:,} | {' | '.join(parts)} | {apart} |")
    return "\n".join([*lines, "", *_summary(ran)])


def _summary(ran: Sequence[Row]) -> Iterator[str]:
    if not ran:
        return
    better = [row["optimize"]["after"] / row["before"] for row in ran]
    times = [row["optimize"]["ratio"] for row in ran]
    yield f"{len(ran)} programs: optimize() {statistics.geometric_mean(better):.3f} of XLA's bytes,"
    yield f"larger in {sum(ratio > 1 for ratio in better)}; time {_of(times)}."
    fit = [row for row in ran if row["half"]["in_all"] <= row["half"]["limit"]]
    cannot = sum(row["half"]["floor"] > row["half"]["limit"] for row in ran)
    slower = _of([row["half"]["ratio"] for row in fit])
    yield f"Fit to the share: {len(fit)}, {cannot} cannot; time of those {slower}."
    pairs = [
        (row["modelled"] * ratio, row["seconds"] * measured)
        for row in ran
        for ratio, measured in (
            (1.0, 1.0),
            *((row[way]["modelled_ratio"], row[way]["ratio"]) for way in ("optimize", "half")),
        )
    ]
    worst = max(max(one / other, other / one) for one, other in pairs)
    if len(pairs) > 1:
        rank = rank_correlation(*zip(*pairs, strict=True))
        yield f"Modelled and measured time: rank correlation {rank:.3f}, worst ratio {worst:.2f}."


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's; equal numbers rank as they come."""

    def ranks(numbers: Sequence[float]) -> list[float]:
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        return [float(order.index(place)) for place in range(len(numbers))]

    return statistics.correlation(ranks(one), ranks(other))


def _of(ratios: Sequence[float]) -> str:
    if not ratios:
        return "unknown"
    return f"{statistics.fmean(ratios):.3f} in the mean, {max(ratios):.3f} at most"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure programs while there is time, then GPT-2."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=580.0)
    parser.add_argument("--gpt2", type=float, default=270.0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--min-bytes", type=int, default=200_000_000)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--modules", type=Path)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--work", nargs="*", default=None, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.work is not None:
        work(given)
    begun = time.monotonic()
    said: Row = {"rows": [], "gpt2": []}
    here = [sys.executable, "-m", "tools.run_gpu_fits", str(given.programs), str(given.file)]
    here += ["--min-bytes", str(given.min_bytes), "--share", str(given.share)]
    if given.modules is not None:
        given.modules.mkdir(parents=True, exist_ok=True)
        here += ["--modules", str(given.modules)]
    here += ["--work"]

    def keep(kind: str, row: Row) -> None:
        said[kind].append(row)
        given.file.write_text(json.dumps(said, indent=1))
        print(
            f"{time.monotonic() - begun:.0f} s", json.dumps(row)[:600], file=sys.stderr, flush=True
        )

    names = given.only or _names(given.programs)
    print(f"{len(names)} programs", file=sys.stderr, flush=True)
    until = begun + given.seconds - given.gpt2
    for row in iter_run(names, here, given.jobs, until):
        keep("rows", row)
    if given.gpt2:
        command = [sys.executable, "-m", "tools.gpt2_budgets"]
        until = begun + given.seconds
        for row in iter_rows(["jax", "torch"], lambda left: Child([*command, *left]), until, 240):
            keep("gpt2", row)
    print(table(said["rows"]))
    return 0


def _names(path: Path) -> list[str]:
    """The programs of a file in the order they are tried in."""
    programs = load(path)
    found = [name for name, build in programs.items() if runs_here(build)]

    def rank(name: str) -> tuple[bool, bool, int]:
        tags = programs[name].tags
        is_training = any(part in word for word in (name, *tags) for part in _TRAINING)
        return "xl" not in tags and not name.startswith("xl"), not is_training, found.index(name)

    return sorted(found, key=rank)


if __name__ == "__main__":
    sys.exit(main())
