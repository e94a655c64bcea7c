"""Holds `hlomem shard` to programs with one planted fault each, and to clean ones.

    python -m tools.check_shardings FOLDER [NAME...] [--table NAME]

A file of FOLDER begins with `\"\"\"Fault: KIND. …` and has `make_faulty`, or with `\"\"\"Clean.`
and has `make_clean`; `make_fixed` is in the same file, or made by a diff in FOLDER/fixed. `TARGET`
is the machine, and `# FAULT` ends the lines where the fault is. Prints one row for each file in
Markdown: whether the first finding names such a line, and the kind; the bytes promised from the
plan alone, those that the report says after compiling the change, those that a whole compile of
the printed change saves by `memory_analysis()`, and those of the author's own repair; whether every
argument has the bytes and dimensions that JAX says. With --table the rows are written between
markers of docs/sharding.md, too.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hlomem.base.errors import HlomemError
from hlomem.base.sizes import format_bytes
from hlomem.jax.compile.messages import Job
from hlomem.jax.known_plans import KnownPlans, default_cache
from hlomem.jax.target_kinds import TPU_ENVIRONMENT
from hlomem.jax.trials.shard import shard
from tools.tables import head, put, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.shard import ShardReport
    from hlomem.report.data.sharding.finding import ShardingFinding

DOCUMENT = Path(__file__).parent.parent / "docs" / "sharding.md"
COLUMNS = ("program", "target", "needs", "fault", "line", "kind", "by the plan", "compiled",
           "whole compile", "repair", "arguments")  # fmt: skip
MARKS = ("---", "---", "---:", "---", "---", "---", "---:", "---:", "---:", "---:", "---")
TOLERANCE = 0.02
DEVICES = "--xla_force_host_platform_device_count=8"
TRUTH = """
import json, sys
import jax, msgspec
from hlomem.jax.compile.child import _reshard
from hlomem.jax.compile.decisions import Decisions
from hlomem.jax.compile.factories import find_factory, make_program
from hlomem.jax.compile.messages import Job
from hlomem.jax.compile.shardings import Notes, named_leaves, constrain_by_mesh_alone
from hlomem.jax.probes import instrument
from hlomem.jax.probes.levers import Levers
from hlomem.jax.target_kinds import parse_target
factory, target, changed = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
job = msgspec.convert({"factory": factory, "target": target, **changed}, Job)
if job.value is not None:
    Levers(job.value.key, job.value.change, job.value.site).install()
    instrument.install()
notes = Notes()
devices = parse_target(target)
devices.devices
notes.install()
decisions = Decisions(notes.origins, job.decisions)
decisions.install()
if job.has_mesh:
    constrain_by_mesh_alone()
reshard = lambda *given: _reshard(job, notes, *given)
found = find_factory(factory)
decisions.install_in_libraries()
made = make_program(found, {}, devices, reshard=reshard)
compiled = made.lowered.compile()
shapes = {}
if made.function is not None:
    is_none = lambda one: one is None
    given = jax.tree.leaves((made.arguments, made.keywords), is_leaf=is_none)
    shardings = jax.tree.leaves(compiled.input_shardings, is_leaf=is_none)
    if len(given) == len(shardings):  # fields of modules may be None, as arguments not used are
        shardings = [its for its, one in zip(shardings, given) if one is not None]
    leaves = named_leaves(made.function, made.arguments, made.keywords)
    for (name, leaf), sharding in zip(leaves, shardings):
        if sharding is None:  # it is not used, and not handed over
            continue
        data = leaf.shape
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
            data = jax.eval_shape(jax.random.key_data, leaf).shape
        shapes[name] = [*sharding.shard_shape(leaf.shape), *data[len(leaf.shape):]]
said = compiled.memory_analysis()
total = said.argument_size_in_bytes + said.output_size_in_bytes + said.temp_size_in_bytes
print(json.dumps([said.argument_size_in_bytes, total - said.alias_size_in_bytes, shapes]))
"""


class Truth(NamedTuple):
    """The memory of a program by a whole compile, as JAX tells it."""

    arguments: int
    total: int
    shapes: dict[str, list[int]]
    """The dimensions of each argument on a device."""


class Program(NamedTuple):
    """A file of a set."""

    file: Path
    fault: str
    """Empty for a clean program."""
    target: str
    lines: tuple[int, ...]

    @property
    def factory(self) -> str:
        return f"{self.file}:{'make_faulty' if self.fault else 'make_clean'}"

    @contextmanager
    def repaired(self) -> Iterator[str]:
        """The factory of the author's own repair: as a diff makes it, where there is one."""
        repair = self.file.parent / "fixed" / f"{self.file.stem}.diff"
        if not repair.exists():
            yield f"{self.file}:make_fixed"
            return
        with patched(self.file, repair.read_text()) as file:
            yield f"{file}:make_fixed"


@contextmanager
def patched(file: Path, diff: str) -> Iterator[Path | None]:
    """A copy of a file with a diff applied; None where it does not apply."""
    with TemporaryDirectory() as home:
        copy = Path(home) / file.name
        shutil.copy(file, copy)
        done = subprocess.run(
            ["/usr/bin/env", "patch", "-p1", "--quiet"],
            input=diff,
            text=True,
            cwd=home,
            check=False,
        )
        yield None if done.returncode else copy


def read_program(file: Path) -> Program:
    """The header and the marks of a file, which is not imported."""
    text = file.read_text()
    tree = ast.parse(text)
    words = (ast.get_docstring(tree) or "").split()
    fault = words[1].strip(".") if words[:1] == ["Fault:"] else ""
    targets = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TARGET"
    ]
    marked = [
        at for at, line in enumerate(text.split("\n"), 1) if line.rstrip().endswith("# FAULT")
    ]
    return Program(file, fault, targets[0] if targets else "cpu", tuple(marked))


def compile_whole(factory: str, target: str, changed: dict[str, Any] | None = None) -> Truth | str:
    """A whole compile in a process of its own; its last line if it fails."""
    done = subprocess.run(
        [sys.executable, "-c", TRUTH, factory, target, json.dumps(changed or {})],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **TPU_ENVIRONMENT, "JAX_PLATFORMS": "cpu"},
    )
    if done.returncode:
        return f"NOT COMPILED: {done.stderr.strip().splitlines()[-1][:60]}"
    return Truth(*json.loads(done.stdout.strip().splitlines()[-1]))


def check_arguments(truth: Truth | str, report: ShardReport) -> str:
    """`same` if arguments are as JAX says, in bytes and dimensions."""
    if isinstance(truth, str):
        return truth
    ours = sum(argument.size for argument in report.arguments)
    if ours != truth.arguments:
        return f"{ours} BYTES, NOT {truth.arguments}"
    for argument in report.arguments:
        there = truth.shapes.get(argument.name)
        if there is not None and tuple(there) != argument.local:
            return f"{argument.name}: {argument.local}, NOT {tuple(there)}"
    return "same"


def compile_change(program: Program, finding: ShardingFinding) -> Truth | str:
    """A whole compile of what a finding says to write: its diff applied, its shardings given."""
    change = finding.change
    changed = {
        "arguments": msgspec.to_builtins(change.arguments),
        "result_shardings": msgspec.to_builtins(change.results),
        "decisions": msgspec.to_builtins(change.decisions),
        "has_mesh": change.has_mesh,
    }
    if change.value is not None:
        changed = {"value": msgspec.to_builtins(change.value)}
    if "--- a/" not in finding.how:
        return compile_whole(program.factory, program.target, changed)
    diff = finding.how[finding.how.index("--- a/") :] + "\n"
    with patched(program.file, diff) as copy:
        if copy is None:
            return "BROKEN PATCH"
        given = {} if change.value is not None else changed
        return compile_whole(f"{copy}:make_faulty", program.target, given)


def is_near(promised: int, got: int | None) -> bool:
    return got is not None and abs(promised - got) <= TOLERANCE * abs(got)


def names_line(program: Program, finding: ShardingFinding) -> bool:
    file, _, line = (finding.source or "").rpartition(":")
    return Path(file).name == program.file.name and line.isdigit() and int(line) in program.lines


def names_chain(program: Program, finding: ShardingFinding) -> bool:
    """Whether another line of the finding's chain is marked."""
    links = [link.line.rpartition(":") for link in finding.chain]
    return any(Path(file).name == program.file.name and int(line) in program.lines
               for file, _, line in links)  # fmt: skip


def size_of(factory: str, target: str) -> int:
    return (
        KnownPlans(default_cache())
        .plan(Job(factory=factory, target=target), None, _ignore)
        .plan.size
    )


def _ignore() -> None:
    """Nobody watches."""


def check(program: Program, counts: Counter[str]) -> Iterator[list[str]]:
    """The row of one program."""
    title = program.file.stem
    try:
        report = shard(program.factory, target=program.target)
    except HlomemError as error:
        counts["failed"] += 1
        yield [title, program.target, str(error).splitlines()[0][:80], *["-"] * 8]
        return
    truth = compile_whole(program.factory, program.target)
    arguments = check_arguments(truth, report)
    counts["arguments"] += arguments == "same"
    needs = format_bytes(report.size)
    if not program.fault:
        counts["clean"] += 1
        counts["quiet"] += not report.findings
        found = ", ".join(finding.kind for finding in report.findings)
        yield [title, program.target, needs, "clean", found or "quiet", *["-"] * 5, arguments]
        return
    counts["faulty"] += 1
    with program.repaired() as repaired:
        repair = report.size - size_of(repaired, program.target)
    if not report.findings:
        cells = ["NOTHING FOUND", "-", "-", "-", "-", format_bytes(repair), arguments]
        yield [title, program.target, needs, program.fault, *cells]
        return
    yield _faulty(program, report, repair, truth, counts)


def _faulty(
    program: Program, report: ShardReport, repair: int, truth: Truth | str, counts: Counter[str]
) -> list[str]:
    first = report.findings[0]
    is_line, is_kind = names_line(program, first), first.kind == program.fault
    changed = compile_change(program, first) if first.got is not None else "-"
    whole = None
    if isinstance(changed, Truth) and isinstance(truth, Truth):
        whole = truth.total - changed.total
    counts["lines"] += is_line
    counts["chains"] += is_line or names_chain(program, first)
    counts["kinds"] += is_kind
    counts["by the plan"] += is_near(first.promised, whole)
    counts["compiled"] += first.got is not None and is_near(first.got, whole)
    line = "yes" if is_line else f"NO: {(first.source or '-').rpartition(':')[2]}"
    kind = "yes" if is_kind else f"NO: {first.kind}"
    got = "-" if first.got is None else format_signed(first.got)
    cells = [line, kind, format_signed(first.promised), got]
    cells += [str(changed) if whole is None else format_signed(whole), format_signed(repair)]
    needs = format_bytes(report.size)
    same = check_arguments(truth, report)
    return [program.file.stem, program.target, needs, program.fault, *cells, same]


def format_signed(size: int) -> str:
    return f"-{format_bytes(-size)}" if size < 0 else format_bytes(size)


def summed_up(counts: Counter[str]) -> str:
    """The result of all programs, in a sentence."""
    faulty, clean = counts["faulty"], counts["clean"]
    return (
        f"{faulty} programs with a fault: its line is named first in {counts['lines']}, in the"
        f" chain of the first finding in {counts['chains']}, its kind in {counts['kinds']}; what a"
        " whole compile of the printed change saves is within 2 % of what the report says in"
        f" {counts['compiled']}, and of what the plan alone promises in"
        f" {counts['by the plan']}. {clean} clean programs: no finding in {counts['quiet']}."
        f" Arguments as JAX says in {counts['arguments']} of {faulty + clean}."
    )


def main() -> None:
    """Print the table, and write it into the documentation if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--table", default="")
    given: Any = parser.parse_intermixed_args()
    if DEVICES not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}".strip()
    folder = given.folder.resolve()
    os.chdir(folder)  # diffs are relative to it
    lines = head(COLUMNS, MARKS)
    print("\n".join(lines))
    counts: Counter[str] = Counter()
    for file in sorted(folder.glob("*.py")):
        if given.names and file.stem not in given.names:
            continue
        for cells in check(read_program(file), counts):
            lines.append(row(cells))
            print(lines[-1], flush=True)
    lines += ["", summed_up(counts)]
    print("\n".join(lines[-2:]))
    if given.table:
        put(DOCUMENT, given.table, "\n".join(lines))


if __name__ == "__main__":
    main()
