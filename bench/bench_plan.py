"""Planning against XLA's C++: CPU time of cold processes, per stage, growth and peak memory.

    python bench/bench_plan.py [--corpus ../shared] [--repeat 3]

One row per module of real/cpu of at least 100 kB. "hlomem" is everything `hlomem plan` does to
write the dumps of a module, from the start of the process to its end. "XLA" is the import of its
bindings, parsing, buffer assignment and writing the dumps. Import and parsing are measured here;
the rest is XLA's parsing time of this run times what `REST_PER_PARSE` says the rest took of it on a
quiet machine. A ratio above 1 means that hlomem is faster (or smaller). Needs jaxlib beside hlomem
for that; without it only hlomem's figures are printed.

Processes of the two take turns, so that a noisy machine hits both, and the best of several counts.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

SMALLEST = 100_000
REFERENCE = "hlo_llama31_8b_bf16_1x8"
GROWING = "resnet50_keras_jax_f32"
COPIES = 10

REST_PER_PARSE = {"hlo_llama31_8b_bf16_1x8": 1.72, "gemma3_1b_flax_call": 0.83}
"""Buffer assignment and dump of XLA, in parts of its parsing time (jaxlib 0.12.0.1)."""
REST_AT_LEAST = 0.83
"""For modules not listed: the smallest share seen, which flatters XLA."""

HAS_XLA = importlib.util.find_spec("jaxlib") is not None

# The peak is read inside the process: what `wait4` says of it is inherited over a fork.
_PEAK = 'print("peak", open("/proc/self/status").read().split("VmHWM:")[1].split()[0])'
_PLAN = f"""
import sys
from hlomem.cli import main
sys.argv[1:] = ["plan", sys.argv[1], "-o", sys.argv[2], "--force", "--timings"]
code = main()
{_PEAK}
sys.exit(code)
"""
_XLA = f"""
import sys, time
start = time.process_time()
from jaxlib import _hlo
imported = time.process_time()
text = open(sys.argv[1], encoding="utf-8").read()
read = time.process_time()
module = _hlo.hlo_module_from_text(text)
parsed = time.process_time()
print("import", 1000 * imported)
print("parse", 1000 * (parsed - read))
{_PEAK}
"""
_FIGURE = re.compile(r"^(\w+) +([0-9.]+)", re.MULTILINE)


class Run(NamedTuple):
    """One process: its CPU time in ms, and what it printed about itself."""

    total: float
    figures: dict[str, float]

    @property
    def peak(self) -> float:
        """Most memory it held, in MB."""
        return self.figures["peak"] / 1024

    @property
    def planning(self) -> float:
        """CPU ms of all stages, start of the interpreter and imports left out."""
        return self.figures["total"]


# Both sides run from compiled bytecode, as installed packages do.
_ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}


def run(script: str, *arguments: Path) -> Run:
    """Run a script in a fresh process; its CPU time is that of user and system."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(command, stdout=output, stderr=output, env=_ENVIRONMENT)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if child.returncode:
        raise SystemExit(f"{arguments[0]}: {text}")
    figures = {name: float(value) for name, value in _FIGURE.findall(text)}
    return Run(1000 * (usage.ru_utime + usage.ru_stime), figures)


def measure(module: Path, repeat: int, *, with_xla: bool = True) -> tuple[Run, Run | None]:
    """The best run of hlomem and of XLA."""
    ours: list[Run] = []
    theirs: list[Run] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeat):
            ours.append(run(_PLAN, module, Path(folder)))
            if HAS_XLA and with_xla:
                theirs.append(run(_XLA, module))
    best = min(theirs, key=lambda each: each.figures["parse"], default=None)
    return min(ours, key=lambda each: each.total), best


def xla_total(name: str, xla: Run) -> float:
    """CPU ms of import, parsing, buffer assignment and dump."""
    parse = xla.figures["parse"]
    return xla.figures["import"] + parse * (1 + REST_PER_PARSE.get(name, REST_AT_LEAST))


def print_row(module: Path, repeat: int) -> None:
    """Time and memory of one module."""
    name = module.parent.name
    ours, xla = measure(module, repeat)
    row = f"{name[:40]:40} {module.stat().st_size / 1e6:6.1f} {ours.total:8.0f} {ours.peak:8.0f}"
    if xla is not None:
        theirs = xla_total(name, xla)
        mark = "" if name in REST_PER_PARSE else "*"
        row += (
            f" {xla.figures['import']:8.0f} {xla.figures['parse']:7.0f} {f'{theirs:.0f}{mark}':>8}"
            f" {xla.peak:8.0f} {theirs / ours.total:7.2f} {xla.peak / ours.peak:7.2f}"
        )
    print(row)
    if name == REFERENCE:
        stages = {key: value for key, value in ours.figures.items() if key != "peak"}
        print("  " + ", ".join(f"{stage} {spent:.0f}" for stage, spent in stages.items()))


def print_table(modules: list[Path], repeat: int) -> None:
    """One row per module."""
    head = f"{'module':40} {'MB':>6} {'hlomem':>8} {'peak MB':>8}"
    if HAS_XLA:
        head += f" {'import':>8} {'parse':>7} {'XLA':>8} {'peak MB':>8} {'x time':>7} {'x peak':>7}"
    print(head)
    for module in modules:
        print_row(module, repeat)
    if HAS_XLA:
        print(
            "times in CPU ms; XLA: import and parse measured, the rest scaled from its parse time"
        )
        print("(* by the smallest share seen in any module); XLA's peak is that of parsing alone")
    else:
        print("times in CPU ms; jaxlib is not installed, so there is nothing to compare with")


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


def print_growth(module: Path, repeat: int) -> None:
    """What ten times the instructions cost, start of the process and imports left out."""
    text = module.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        one, ten = Path(folder, "one.hlo"), Path(folder, "ten.hlo")
        one.write_text(multiplied(text, 1), encoding="utf-8")
        ten.write_text(multiplied(text, COPIES), encoding="utf-8")
        small, _ = measure(one, repeat, with_xla=False)
        large, _ = measure(ten, repeat, with_xla=False)
    print(
        f"{COPIES} times the instructions of {module.parent.name}: "
        f"{large.planning / small.planning:.1f} times the time "
        f"({small.planning:.0f} and {large.planning:.0f} ms)"
    )


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--corpus", type=Path, default=Path("../shared"))
    arguments.add_argument("--repeat", type=int, default=3)
    options = arguments.parse_args()
    modules = sorted(options.corpus.glob("real/cpu/*/module.hlo"))
    modules = [each for each in modules if each.stat().st_size >= SMALLEST]
    if not modules:
        print("no modules in the corpus: planning was not measured")
        return
    measure(modules[0], 1)  # makes the bytecode
    print_table(modules, options.repeat)
    for module in modules:
        if module.parent.name == GROWING:
            print_growth(module, options.repeat)


if __name__ == "__main__":
    main()
