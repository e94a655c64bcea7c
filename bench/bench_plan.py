"""Planning against XLA's C++: CPU time of cold processes, per stage, growth and peak memory.

    python -m bench.bench_plan [--corpus ../shared] [--repeat 3] [--python PATH] [--write FILE]

One row per module of real/ of at least 100 kB. "hlomem" is everything `hlomem plan` does to
write the dumps of a module, from the start of the process to its end: "pure" by Python alone,
"native" with the kernels, where they were built. "XLA" is the import of its
bindings, parsing, buffer assignment with its analyses, and writing the dumps, all measured here.
Where the program that XLA's bindings compile is not the one of the text any more, because it went
through MLIR, and for GPU and TPU, which these bindings have no compiler for, assignment and dumps
count as their share of parsing in `REST_PER_PARSE`. A ratio above 1 means that hlomem is faster (or
smaller). Needs jax beside hlomem for that; without it only
hlomem's figures are printed.

Processes of the two take turns, so that a noisy machine hits both, and the best of several counts;
"spread" is how much longer the median of ours took, in percent; a row whose spread is above
`STEADY` is measured further, up to `MAX_ROUNDS` times as often. Both run on the same Python, unless
`--python` names another for hlomem, as `make bench` does: that of an environment with hlomem and
what it needs, and nothing else (msgspec imports typing_extensions where there is one, for 8 ms).
The first line says which: a distribution's build runs hlomem up to a fifth faster than one built
without profiles. Where valgrind is at hand, the last table counts instructions, which no load
changes. `--write` puts the table between a document's marks.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from tools.tables import head, put, row

SMALLEST = 100_000
REFERENCE = "hlo_llama31_8b_bf16_1x8"
GROWING = ("resnet50_keras_jax_f32", REFERENCE)
COPIES = 10
STEADY = 0.05
"""The spread up to which a row is taken as it is."""
MAX_ROUNDS = 3

REST_PER_PARSE = {"hlo_llama31_8b_bf16_1x8": 1.72}
"""Buffer assignment and dump of XLA, in parts of its parsing time (jaxlib 0.12.0.1), where they
cannot be measured: the analyses and the assignment 1.32, the dumps 0.40."""
REST_AT_LEAST = 0.83
"""For modules not listed: the smallest share seen, which flatters XLA."""
SAME_PROGRAM = 0.2
"""How far the size of XLA's dumps may be from those of the corpus."""

HAS_XLA = importlib.util.find_spec("jaxlib") is not None

_PLAN = """
import sys
from hlomem.cli import main
sys.argv[1:] = ["plan", *sys.argv[1:], "--force", "--timings"]
sys.exit(main())
"""
_PARSE = """
import sys, time
from jaxlib import _hlo
imported = time.process_time()
text = open(sys.argv[1], encoding="utf-8").read()
read = time.process_time()
module = _hlo.hlo_module_from_text(text)
parsed = time.process_time()
print("import", 1000 * imported)
print("parse", 1000 * (parsed - read))
"""
# No pass runs, so that the program stays what it is. Code generation, which comes after the dumps,
# may then fail.
_COMPILE = """
import sys
import jax
from jaxlib import _hlo, _jax, xla_client
module = _hlo.hlo_module_from_text(open(sys.argv[1], encoding="utf-8").read())
computation = xla_client.XlaComputation(module.as_serialized_hlo_module_proto())
client = jax.devices()[0].client
devices = xla_client.DeviceList(tuple(client.local_devices()[:1]))
program = _jax.mlir.xla_computation_to_mlir_module(computation)
client.compile_and_load(program, devices, xla_client.CompileOptions())
"""
_COMPILE_FLAGS = "--xla_dump_to={} --xla_dump_hlo_as_text --xla_disable_all_hlo_passes=true"
_COMPILE_LOG = "buffer_assignment=1,dump=1,hlo_pass_pipeline=1"
_MARKS = ("HLO passes after scheduling", "Buffer assignment done", ".debug_options to ")
"""What the log of a compilation says before the analyses, after the assignment, after the dumps."""
_FIGURE = re.compile(r"^(\w+) +([0-9.]+)", re.MULTILINE)


class Run(NamedTuple):
    """One process: its CPU time in ms, most memory in MB, and what it printed about itself."""

    total: float
    peak: float
    figures: dict[str, float]

    @property
    def planning(self) -> float:
        """CPU ms of all stages, start of the interpreter and imports left out."""
        return self.figures["total"]


class Way(NamedTuple):
    """How hlomem is run."""

    name: str
    python: str
    is_pure: bool


class Ours(NamedTuple):
    """The best run of one way, and how much longer the median took."""

    run: Run
    spread: float


class Peer(NamedTuple):
    """XLA: CPU ms of its steps, most memory in MB while parsing."""

    start: float
    parse: float
    rest: float
    is_measured: bool
    peak: float

    @property
    def total(self) -> float:
        """CPU ms of all of it."""
        return self.start + self.parse + self.rest


# Both sides run from compiled bytecode, as installed packages do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def run(python: str, script: str, *arguments: str | Path, is_pure: bool = False) -> Run:
    """Run a script in a fresh process; its CPU time is that of user and system."""
    command = [python, "-c", script, *map(str, arguments)]
    environment = os.environ | {"HLOMEM_PURE": "1" if is_pure else ""}
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if child.returncode:
        raise SystemExit(f"{arguments[0]}: {text}")
    figures = {name: float(value) for name, value in _FIGURE.findall(text)}
    # The peak is that of this process, if that is larger; it never is.
    return Run(1000 * (usage.ru_utime + usage.ru_stime), usage.ru_maxrss / 1024, figures)


def compile_once(module: Path) -> float | None:
    """CPU ms of XLA's analyses, assignment and dumps; None if it is another program by now."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "TF_CPP_MIN_LOG_LEVEL": "0",
            "TF_CPP_VMODULE": _COMPILE_LOG,
            "XLA_FLAGS": _COMPILE_FLAGS.format(folder),
        }
        command = [sys.executable, "-c", _COMPILE, str(module)]
        child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert child.stderr is not None
        times: list[float] = []
        for line in child.stderr:
            if _MARKS[len(times)] in line and (times or _MARKS[0] in line):
                times.append(_cpu_time(child.pid))
                if len(times) == len(_MARKS):
                    break
        child.kill()
        child.wait()
        if len(times) < len(_MARKS) or not _is_same_program(module.parent, Path(folder)):
            return None
    return 1000 * (times[2] - times[0])


def _cpu_time(pid: int) -> float:
    """Seconds a process has run, its threads together: its clock, as of `clock_getcpuclockid`."""
    return time.clock_gettime(~pid << 3 | 2)


def _is_same_program(entry: Path, folder: Path) -> bool:
    """Whether dumps XLA wrote just now have about the size of those it wrote for the corpus."""
    names = ("buffer-assignment.txt", "values.txt", "live-range.txt")
    wanted = sum((entry / name).stat().st_size for name in names)
    endings = ("-buffer-assignment.txt", "-buffer-assignment-values.txt", "-live-range.txt")
    made = sum(each.stat().st_size for each in folder.iterdir() if each.name.endswith(endings))
    return abs(made - wanted) <= SAME_PROGRAM * wanted


def is_of_cpu(module: Path) -> bool:
    """Whether a module of the corpus, or made of one, was compiled for CPU."""
    return module.parent.parent.name not in ("gpu", "tpu")


def plan_flags(module: Path) -> list[str]:
    """The platform and the release to plan for, where they are not the default."""
    if is_of_cpu(module):
        return []
    meta = json.loads((module.parent / "meta.json").read_text(encoding="utf-8"))
    package = "libtpu" if meta["backend"] == "tpu" else "jaxlib"
    era = f"{package}-{meta['versions'][package]}"
    return ["--backend", meta["backend"], "--chip", meta["chip"], "--era", era]


def measure(way: Way, module: Path, repeat: int) -> Run:
    """The best run of hlomem."""
    with tempfile.TemporaryDirectory() as folder:
        flags = plan_flags(module)
        runs = [
            run(way.python, _PLAN, module, "-o", folder, *flags, is_pure=way.is_pure)
            for _ in range(repeat)
        ]
    return min(runs, key=lambda run: run.total)


def compare(ways: list[Way], module: Path, repeat: int) -> tuple[list[Ours], Peer | None]:
    """The best run of each way of running hlomem, and the best of each step of XLA."""
    ours: list[list[Run]] = [[] for _ in ways]
    parses: list[Run] = []
    rests: list[float | None] = []
    while not _is_enough(ours, repeat):
        for way, runs in zip(ways, ours, strict=True):
            runs.append(measure(way, module, 1))
        if HAS_XLA:
            parses.append(run(sys.executable, _PARSE, module))
            is_known = is_of_cpu(module) and None not in rests
            rests.append(compile_once(module) if is_known else None)
    best = [Ours(min(runs, key=lambda run: run.total), _spread(runs)) for runs in ours]
    return best, _best_peer(module, parses, rests) if parses else None


def _is_enough(ours: list[list[Run]], repeat: int) -> bool:
    """Whether the runs were repeated as often as wanted, and are steady or will not be."""
    count = len(ours[0])
    return count >= repeat and (
        count >= MAX_ROUNDS * repeat or all(_spread(runs) <= STEADY for runs in ours)
    )


def _best_peer(module: Path, parses: list[Run], rests: list[float | None]) -> Peer:
    """The best of each step of XLA."""
    start = min(run.figures["import"] for run in parses)
    parse = min(run.figures["parse"] for run in parses)
    measured = [rest for rest in rests if rest is not None]
    is_measured = len(measured) == len(rests)
    scaled = parse * REST_PER_PARSE.get(module.parent.name, REST_AT_LEAST)
    peak = min(run.peak for run in parses)
    return Peer(start, parse, min(measured) if is_measured else scaled, is_measured, peak)


def _spread(runs: list[Run]) -> float:
    """How much longer the median took than the best."""
    totals = [run.total for run in runs]
    return statistics.median(totals) / min(totals) - 1


def print_row(ways: list[Way], module: Path, repeat: int) -> str:
    """Time and memory of one module; returns the row of the document."""
    name = module.parent.name
    title = f"{module.parent.parent.name}/{name}"
    ours, xla = compare(ways, module, repeat)
    with module.open("rb") as text:  # line by line, to stay smaller than what is measured
        count = sum(b" = " in line for line in text)
    times = [f"{best.run.total:.0f}" for best in ours]
    spread = f"{100 * max(best.spread for best in ours):.0f} %"
    peak = max(best.run.peak for best in ours)
    cells = [title, str(count), f"{module.stat().st_size / 1e6:.1f}", *times, spread, f"{peak:.0f}"]
    if xla is not None:
        mark = "" if xla.is_measured else "*"
        cells.append(f"{xla.start:.0f} + {xla.parse:.0f} + {xla.rest:.0f}{mark}")
        cells += [f"{xla.total / best.run.total:.1f}" for best in ours]
        cells.append(f"{xla.peak / peak:.1f}")
    print(row(cells), flush=True)
    if name == REFERENCE:
        for way, best in zip(ways, ours, strict=True):
            stages = ", ".join(f"{stage} {spent:.0f}" for stage, spent in best.run.figures.items())
            print(f"  {way.name}: {stages}")
    return row([title.replace("/", ", "), *cells[1:]])


def print_table(ways: list[Way], modules: list[Path], repeat: int) -> list[str]:
    """One row per module; returns the table of the document."""
    columns = ["module", "instructions", "MB", *(f"{way.name}, ms" for way in ways), "spread"]
    columns.append("MB held")
    if HAS_XLA:
        columns.append("XLA: import + parse + rest")
        columns += [f"{way.name}, times as fast" for way in ways]
        columns.append("its memory, times ours")
    table = head(columns)
    print("\n".join(table))
    table += [print_row(ways, module, repeat) for module in modules]
    if HAS_XLA:
        print("times in CPU ms; memory: the most held, XLA's while parsing alone; rest: analyses,")
        print("assignment and dumps (* not measured but scaled from the time of parsing)")
    else:
        print("times in CPU ms; jaxlib is not installed, so there is nothing to compare with")
    return table


def multiplied(text: str, copies: int) -> str:
    """A module whose entry computation does everything `copies` times, under new names."""
    header, _, rest = text.partition("\n\n")
    start = rest.index("ENTRY ")
    end = rest.index("\n}", start)
    called, body = rest[:start], rest[rest.index("\n", start) + 1 : end]
    parameter_count = len(re.findall(r" parameter\(\d+\)", body))
    bodies = []
    for copy in range(copies):
        shifted = _with_parameters_from(copy * parameter_count, _renamed(body, copy))
        is_last = copy == copies - 1
        bodies.append(shifted if is_last else shifted.replace("  ROOT ", "  "))
    computations = [_renamed(called, copy) for copy in range(copies)]
    name = header.split(",")[0]
    return "\n".join(
        [f"{name}, is_scheduled=true\n", *computations, "ENTRY %main {", *bodies, "}\n"]
    )


def _with_parameters_from(first: int, body: str) -> str:
    def shift(match: re.Match[str]) -> str:
        return f" parameter({first + int(match[1])})"

    return re.sub(r" parameter\((\d+)\)", shift, body)


def _renamed(text: str, copy: int) -> str:
    return text.replace("%", f"%copy{copy}.")


def print_growth(ways: list[Way], module: Path, repeat: int) -> None:
    """What ten times the instructions cost, start of the process and imports left out."""
    text = module.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        one, ten = Path(folder, "one.hlo"), Path(folder, "ten.hlo")
        one.write_text(multiplied(text, 1), encoding="utf-8")
        ten.write_text(multiplied(text, COPIES), encoding="utf-8")
        for way in ways:
            small = measure(way, one, repeat)
            large = measure(way, ten, repeat)
            print(
                f"{COPIES} times the instructions of {module.parent.name}, {way.name}: "
                f"{large.planning / small.planning:.1f} times the time "
                f"({small.planning:.0f} and {large.planning:.0f} ms)"
            )


_DESCRIBE = """
import sys, sysconfig
from hlomem.assign.best_fit import IS_NATIVE
flags = sysconfig.get_config_var("CONFIG_ARGS") or ""
profiled = "with" if "--enable-optimizations" in flags else "without"
built = "the distribution's" if sys.base_prefix == "/usr" else f"built {profiled} profiles"
print("native" if IS_NATIVE else "pure")
print(f"Python {sys.version.split()[0]}, {built}")
"""


def describe(python: str) -> tuple[list[Way], str]:
    """The ways hlomem can run; the interpreters, how ours was built, and the release of XLA."""
    told = subprocess.run([python, "-c", _DESCRIBE], capture_output=True, text=True, check=True)
    best, built = told.stdout.splitlines()
    ways = [Way("pure", python, is_pure=True)]
    if best == "native":
        ways.append(Way("native", python, is_pure=False))
    ours = f"hlomem on {built}"
    if not HAS_XLA:
        return ways, ours
    return ways, f"{ours}; XLA of jaxlib {version('jaxlib')} on Python {sys.version.split()[0]}."


def print_instructions(ways: list[Way], modules: list[Path]) -> None:
    """Instructions of whole plans in millions, where valgrind can count them."""
    if shutil.which("valgrind") is None:
        print("no valgrind: instructions were not counted")
        return
    print("\n".join(head(["module", *(f"{way.name}, M instructions" for way in ways)])))
    for module in modules:
        counts = [count_instructions(way, module) for way in ways]
        print(row([f"{module.parent.parent.name}, {module.parent.name}", *counts]), flush=True)


def count_instructions(way: Way, module: Path) -> str:
    """Millions of instructions of a plan."""
    with tempfile.TemporaryDirectory() as folder:
        count = ["valgrind", "--tool=cachegrind", "--cache-sim=no"]
        plan = [way.python, "-c", _PLAN, str(module), "-o", folder, *plan_flags(module)]
        command = [*count, "--cachegrind-out-file=/dev/null", *plan]
        environment = os.environ | {"HLOMEM_PURE": "1" if way.is_pure else ""}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    return "unknown" if found is None else f"{int(found[1].replace(',', '')) / 1e6:.0f}"


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--corpus", type=Path, default=Path("../shared"))
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--python", default=sys.executable, help="the one hlomem runs on")
    arguments.add_argument("--write", type=Path, help="a document with marks for the table")
    options = arguments.parse_args()
    modules = sorted(options.corpus.glob("real/*/*/module.hlo"))
    modules = [module for module in modules if module.stat().st_size >= SMALLEST]
    if not modules:
        print("no modules in the corpus: planning was not measured")
        return
    ways, told = describe(options.python)
    print(told)
    for way in ways:
        measure(way, modules[0], 1)  # makes the bytecode
    table = print_table(ways, modules, options.repeat)
    if options.write is not None:
        put(options.write, "plan", "\n".join([told, "", *table]))
    for module in modules:
        if module.parent.name in GROWING and is_of_cpu(module):
            print_growth(ways, module, options.repeat)
    print_instructions(ways, modules)


if __name__ == "__main__":
    main()
