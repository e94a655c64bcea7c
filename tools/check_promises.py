"""Holds `hlomem advise` to programs: what was promised, what XLA's compiler gave.

    python -m tools.check_promises FOLDER [NAME...] [--target TARGET] [--alternate] [--table NAME]

FOLDER has Python files with factories: functions whose names begin with `make` (docs/jax.md). A
file may have `TARGETS`, a tuple; by default its programs are compiled for this CPU and for a v5e.
Prints one row for each advice in Markdown: the bytes that were promised from the plan, the bytes
that XLA's compile of the changed source gave, whether they are in the range, or no further than a
twentieth outside, and whether the sign is right. Each printed diff is applied to a copy of the
folder by `patch`; its program must need what was said. NAME chooses programs: `plain.make_ode`;
with --alternate each is compiled for one of its targets, in turn, and one diff of each is applied.
With --table the rows are written between markers of docs/advice.md, too.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
from collections import Counter
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import HlomemError
from hlomem.base.sizes import format_bytes
from hlomem.jax.compile.messages import Job
from hlomem.jax.known_plans import KnownPlans, default_cache
from hlomem.jax.trials.advise import advise
from tools.tables import head, put, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.advice import Advice, AdviceReport

TARGETS = ("cpu", "tpu-v5e:2x2")
TOLERANCE = 0.05
MAX_DIFFS = 100
DOCUMENT = Path(__file__).parent.parent / "docs" / "advice.md"
COLUMNS = ("program", "target", "needs", "advice", "promised", "got", "in range", "diff")
MARKS = ("---", "---", "---:", "---", "---:", "---:", "---", "---")


class Program(NamedTuple):
    """A factory for one target."""

    file: Path
    name: str
    target: str

    @property
    def title(self) -> str:
        return f"{self.file.stem}.{self.name}"


def find_programs(folder: Path) -> Iterator[Program]:
    """The factories of a folder, read without importing them."""
    for file in sorted(folder.glob("*.py")):
        tree = ast.parse(file.read_text())
        targets = TARGETS
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TARGETS":
                targets = ast.literal_eval(node.value)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("make"):
                for target in targets:
                    yield Program(file, node.name, target)


def check_diff(program: Program, report: AdviceReport, advice: Advice) -> str:
    """`same` if the printed diff, applied by `patch`, gives what was said."""
    if "--- a/" not in advice.how:
        return "-"
    with TemporaryDirectory() as home:
        copy = Path(home) / program.file.parent.name
        shutil.copytree(program.file.parent, copy)
        diff = advice.how[advice.how.index("--- a/") :] + "\n"
        done = subprocess.run(
            ["/usr/bin/env", "patch", "-p1", "--quiet"],
            input=diff,
            text=True,
            cwd=copy,
            check=False,
        )
        if done.returncode:
            return "BROKEN PATCH"
        job = Job(factory=f"{copy / program.file.name}:{program.name}", target=program.target)
        found = KnownPlans(default_cache()).plan(job, None, lambda: None)
    return "same" if report.size - found.plan.size == advice.got else "ANOTHER SIZE"


def range_mark(advice: Advice) -> str:
    """`yes`, `NO` or `WRONG SIGN` for a promise that was compiled; `-` where there is none."""
    if advice.got is None or advice.least is None or advice.most is None:
        return "-"
    if advice.got <= 0 < advice.least:
        return "WRONG SIGN"
    low, high = advice.least * (1 - TOLERANCE), advice.most * (1 + TOLERANCE)
    return "yes" if low <= advice.got <= high else "NO"


def check(program: Program, counts: Counter[str], diffs: int) -> Iterator[list[str]]:
    """The rows of one program; so many of its diffs are applied."""
    spec = f"{program.file.resolve()}:{program.name}"
    try:
        report = advise(spec, target=program.target)
    except HlomemError as error:
        counts["failed"] += 1
        yield [program.title, program.target, str(error).splitlines()[0][:80], *["-"] * 5]
        return
    counts["diffs of it"] = 0
    for advice in report.advice:
        promised = "-"
        if advice.least is not None and advice.most is not None:
            low, high = format_bytes(advice.least), format_bytes(advice.most)
            promised = low if low == high else f"{low} to {high}"
        in_range, diff = range_mark(advice), "-"
        if counts["diffs of it"] < diffs:
            diff = check_diff(program, report, advice)
            counts["diffs of it"] += diff != "-"
        counts[f"range {in_range}"] += in_range != "-"
        counts[f"diff {diff}"] += diff != "-"
        counts[f"method {advice.method}"] += 1
        got = "-" if advice.got is None else format_bytes(advice.got)
        what = f"{advice.rule}{f' ({advice.argument})' if advice.argument else ''}"
        yield [program.title, program.target, format_bytes(report.size), what, promised, got,
               in_range, diff]  # fmt: skip
    if not report.advice:
        yield [program.title, program.target, format_bytes(report.size), "nothing", *["-"] * 4]
    for note in report.notes:
        print(f"<!-- {program.title} {program.target}: {note} -->", flush=True)


def summed_up(counts: Counter[str], programs: int) -> str:
    """What became of all promises, in a sentence."""
    made = counts["range yes"] + counts["range NO"] + counts["range WRONG SIGN"]
    diffs = sum(count for name, count in counts.items() if name.startswith("diff "))
    return (
        f"{programs} programs: {counts['range yes']} of {made} promises from plans in range,"
        f" {counts['range WRONG SIGN']} with the wrong sign; {counts['method compiled']} changes"
        f" compiled, {counts['diff same']} of {diffs} printed diffs give exactly what was said;"
        f" {counts['method possible']} named as possible, without bytes."
    )


def main() -> None:
    """Print the table, and write it into the documentation if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--target", default="")
    parser.add_argument("--alternate", action="store_true")
    parser.add_argument("--table", default="")
    given = parser.parse_intermixed_args()
    os.chdir(given.folder)  # diffs are relative to it
    given.folder = Path.cwd()
    lines = head(COLUMNS, MARKS)
    print("\n".join(lines))
    counts: Counter[str] = Counter()
    programs = [
        program
        for program in find_programs(given.folder)
        if (not given.names or program.title in given.names)
        and given.target in ("", program.target)
    ]
    if given.alternate:
        groups = [list(group) for _, group in groupby(programs, key=lambda one: one.title)]
        programs = [group[number % len(group)] for number, group in enumerate(groups)]
    for program in programs:
        for cells in check(program, counts, 1 if given.alternate else MAX_DIFFS):
            lines.append(row(cells))
            print(lines[-1], flush=True)
    lines += ["", summed_up(counts, len(programs))]
    print("\n".join(lines[-2:]))
    if given.table:
        put(DOCUMENT, given.table, "\n".join(lines))


if __name__ == "__main__":
    main()
