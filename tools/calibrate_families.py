"""Measures on a GPU families of kernels that the model of time knows little of, side by side.

    python -m tools.calibrate_families FILE [--seconds 280] [--jobs 14] [--small]
                                       [--only FAMILY,...]

`tools/kernel_families.py` has the cases: scatters, gathers, reductions, scans, sorts, transforms,
decompositions, products of models, random numbers, launches, loops, branches, small training steps.
`--jobs` processes compile, each its share; then each times its own while all others wait; then,
while there is time, each looks at them by the profiler, again alone. Of each case FILE (JSON) has:

- `least`, `median`: seconds of a call until its results are there, of which `nothing` in the family
  `launch` is what any call takes; `sustained`: seconds of one of many calls that wait for nobody
- `kernels`: by instruction the seconds in all and the kernels of `runs` runs, by the profiler
- `module`: what the compiler made of it (base85 of zlib of an `HloModuleProto`)
- or `error`: why it has no time, or of the profiler `kernels failed`

FILE is written after every share. `python -m tools.compare_clock FILE` holds it against the model.
`--small` shrinks everything and runs on any backend, to try the script itself.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import time
import zlib
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from tools.run_gpu_fits import MARK, Child, Compiling, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MAX_BYTES = 14 << 20
"""Of modules in the file."""
COMPILED_BY, TIMED_BY = 0.5, 0.75
"""Shares of the time after which nothing more is compiled, or timed."""
TIMED_FOR = 0.04
"""Seconds for which a case is run, each way."""
PATIENCE = 60.0
"""Seconds after which a process that says nothing is given up."""
SHRINK = 16
"""What sizes are divided by to try the script."""


# The child: its share of the cases.


class Ready:
    """A compiled case, and what makes its arguments."""

    def __init__(self, case: Any) -> None:
        kernels: Any = import_module("tools.calibrate_kernels")
        jax: Any = import_module("jax")
        self._jax = jax
        op = case.op

        def fill() -> Any:
            pairs = zip(op.shapes, op.dtypes, strict=True)
            return [kernels.filled(shape, dtype) for shape, dtype in pairs]

        def program(arguments: Any) -> Any:
            return kernels.run_op(op, arguments)

        options = kernels.APART if case.apart and jax.default_backend() == "gpu" else None
        self._fill = jax.jit(fill).lower().compile()
        shapes = jax.eval_shape(fill)
        self._compiled = jax.jit(program).lower(shapes).compile(compiler_options=options)
        self._case = case

    def module(self) -> str:
        [module] = self._compiled.runtime_executable().hlo_modules()
        proto = module.as_serialized_hlo_module_proto()
        return base64.b85encode(zlib.compress(proto, 9)).decode()

    def timed(self) -> Row:
        clock: Any = import_module("tools.calibrate_clock")
        arguments = self._arguments()
        found = clock.timed(partial(self._compiled, arguments), TIMED_FOR)
        return {
            "name": self._case.key,
            "family": self._case.family,
            "apart": self._case.apart,
            **found._asdict(),
            "sustained": self._sustained(arguments),
            "module": self.module(),
        }

    def _sustained(self, arguments: Any) -> float:
        """Seconds of one of so many calls that what they wait for is the device."""
        count, took = 1, 0.0
        while took < TIMED_FOR / 2 and count < 1 << 12:
            count *= 2
            start = time.perf_counter()
            for _ in range(count):
                result = self._compiled(arguments)
            self._jax.block_until_ready(result)
            took = time.perf_counter() - start
        return took / count

    def traced(self) -> Row:
        kernels: Any = import_module("tools.calibrate_kernels")
        clock: Any = import_module("tools.calibrate_clock")
        arguments = self._arguments()

        def runs() -> None:
            for _ in range(kernels.RUNS):
                self._jax.block_until_ready(self._compiled(arguments))

        return {"runs": kernels.RUNS, "kernels": clock.kernels_of(runs)}

    def _arguments(self) -> Any:
        return self._jax.block_until_ready(self._fill())


def say(row: Row) -> None:
    print(f"{MARK}{json.dumps(row, default=str)}", flush=True)


def attempt(name: str, step: Callable[[], Any], failed: str = "error") -> Any:
    """What a step gives; where it fails, nothing, and that is said."""
    try:
        return step()
    except Exception as error:  # noqa: BLE001 - the next may work
        say({"name": name, failed: f"{type(error).__name__}: {error}"[:1000]})
        return None


def work(given: argparse.Namespace) -> None:
    """Compile cases while there is time, then do as one is told: time them, trace them."""
    families: Any = import_module("tools.kernel_families")
    cases = {case.key: case for case in families.all_cases(SHRINK if given.small else 1)}
    ready: dict[str, Ready] = {}
    for name in given.work:
        if time.time() > given.until:
            say({"name": name, "error": "no time was left to compile it"})
            continue
        say({"begun": name})
        made = attempt(name, partial(Ready, cases[name]))
        if made is not None:
            ready[name] = made
    say({"ready": list(ready)})
    for line in sys.stdin:
        word, _, until = line.partition(" ")
        for name, one in ready.items():
            if time.time() > float(until):
                break
            if word == "time" and (row := attempt(name, one.timed)) is not None:
                say(row)
            if word == "trace" and (row := attempt(name, one.traced, "kernels failed")) is not None:
                say({"name": name, **row})
        say({"done": word})
    os._exit(0)


# The parent.


class Share(Compiling):
    """A share of the cases, compiled by a child that is then told what to do."""

    def told(self, word: str, until: float) -> Iterator[Row]:
        """What the child says of each case; one that dies or hangs is ended."""
        child = self.child
        if child is None:
            return
        try:
            child.tell(f"{word} {until}")
            while (row := child.next(PATIENCE)) is not None and "done" not in row:
                yield row
            if row is not None:
                return
        except (TimeoutError, OSError):
            pass
        child.end()
        self.child = None

    def end(self) -> None:
        if self.child is not None:
            self.child.end()


class Sheet:
    """The file: a row for each case."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._path = path
        self._start = time.time()
        self.rows: dict[str, Row] = {name: {"name": name} for name in names}

    def add(self, row: Row) -> None:
        self.rows[row["name"]].update(row)

    def write(self) -> None:
        left = MAX_BYTES
        for one in self.rows.values():
            left -= len(one.get("module", ""))
            if left < 0:
                one.pop("module", None)
        for one in self.rows.values():
            if "least" not in one:
                one.setdefault("error", "it was not reached, or its process ended")
            else:
                one.pop("error", None)
        said = {"seconds": time.time() - self._start, "rows": list(self.rows.values())}
        self._path.write_text(json.dumps(said))


def measure(given: argparse.Namespace, names: Sequence[str], command: Sequence[str]) -> Sheet:
    """Compile side by side, then time and trace one share after another."""
    begun = time.time()
    sheet = Sheet(given.file, names)
    last = begun + COMPILED_BY * given.seconds
    told = [*command, "--until", str(last), "--work"]
    shares = [
        Share(names[place :: given.jobs], lambda left: Child([*told, *left]), last)
        for place in range(min(given.jobs, len(names)))
    ]
    threads = [Thread(target=share.compile, daemon=True) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for share in shares:
        for row in share.rows:
            sheet.add(row)
    print(f"compiled after {time.time() - begun:.0f} s", file=sys.stderr, flush=True)
    for word, part in (("time", TIMED_BY), ("trace", 1.0)):
        for share in shares:
            for row in share.told(word, begun + part * given.seconds):
                sheet.add(row)
            sheet.write()
        print(f"{word} ended after {time.time() - begun:.0f} s", file=sys.stderr, flush=True)
    for share in shares:
        share.end()
    return sheet


def case_names(only: str, command: Sequence[str]) -> list[str]:
    """The names of all cases, or of some families, by a process that has no device to itself."""
    child = Child([*command, "--names"])
    found = child.next(PATIENCE) or {"names": []}
    child.end()
    chosen = only.split(",") if only else []
    return [name for name in found["names"] if not chosen or name.partition("/")[0] in chosen]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all cases, or those of the families that are named, while there is time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=280.0)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", default="", help="names of families, divided by commas")
    parser.add_argument("--names", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--work", nargs="*", default=None, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.work is not None:
        work(given)
    if given.names:
        families: Any = import_module("tools.kernel_families")
        say({"names": [one.key for one in families.all_cases(SHRINK if given.small else 1)]})
        return 0
    command = [sys.executable, "-m", "tools.calibrate_families", str(given.file)]
    command += ["--small"] if given.small else []
    sheet = measure(given, case_names(given.only, command), command)
    failed = [row for row in sheet.rows.values() if "error" in row]
    traced = sum("kernels" in row for row in sheet.rows.values())
    print(f"{len(sheet.rows)} cases, {len(failed)} failed, {traced} traced")
    for row in failed[:20]:
        print(f"{row['name']}: {row['error'][:200]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
