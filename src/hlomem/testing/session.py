"""A test run: its measurements, compared with limits and the baseline, and their summaries.

A failing test gets the differences of `hlomem diff` if the baseline's program was saved, else by
role and line. Entries travel as JSON, since tests may run in other processes.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hlomem.base.errors import HlomemError
from hlomem.base.growth_limit import parse_limit
from hlomem.base.sizes import format_bytes
from hlomem.machines.capacity import parse_capacity
from hlomem.report.data.diff import build_diff
from hlomem.report.screens.diff_text import draw_diff, signed
from hlomem.report.screens.text import PIPED_WIDTH, percent, plain, space_label
from hlomem.testing.baseline import (
    Measurement,
    measure,
    merge,
    open_program,
    read_baseline,
    save_program,
    write_baseline,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hlomem.api.explain import MemoryExplanation
    from hlomem.report.data.memory import MemoryView


class Settings(NamedTuple):
    root: Path
    baseline: Path
    tolerance: str
    updates: bool
    programs: Path | None
    """The folder with the dumps of the baseline's programs, if they are saved."""


class SourceLine(NamedTuple):
    file: str
    line: int


class Session:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.entries: dict[str, Entry] = {}

    @cached_property
    def baseline(self) -> dict[str, Measurement]:
        """The expected measurements; a file that is rewritten need not be readable."""
        try:
            return read_baseline(self.settings.baseline)
        except HlomemError:
            if self.settings.updates:
                return {}
            raise

    def check(
        self,
        key: str,
        memory: MemoryExplanation,
        place: SourceLine,
        *,
        target: str | None = None,
        limit: int | None = None,
    ) -> Entry:
        """Measure a program and compare it with its limit and the baseline."""
        now = measure(memory, target, self.settings.root)
        before = self.baseline.get(key)
        held = None if self.settings.updates else before
        verdict = compare(now, limit=limit, before=held, tolerance=self.settings.tolerance)
        if self.settings.programs is not None:
            verdict = self._with_program(key, memory, verdict)
        where = _place_of(verdict.line, self.settings.root) or place
        return Entry(
            key=key,
            measurement=now,
            before=before,
            limit=limit,
            problems=verdict.problems,
            note=verdict.note,
            file=where.file,
            line=where.line,
        )

    def _with_program(
        self, key: str, memory: MemoryExplanation, verdict: LimitVerdict
    ) -> LimitVerdict:
        """The verdict with the full difference; an update saves the program instead."""
        folder = self.settings.programs
        assert folder is not None
        if self.settings.updates:
            save_program(folder, key, memory)
            return verdict
        has_grown = any("against the baseline" in problem for problem in verdict.problems)
        before = open_program(folder, key) if has_grown else None
        if before is None:
            return verdict
        *others, grown = verdict.problems
        text = f"{grown.partition(chr(10))[0]}\n{explain_growth(before, memory.memory)}"
        return replace(verdict, problems=(*others, text))

    def add(self, data: dict[str, Any]) -> None:
        entry = msgspec.convert(data, Entry)
        self.entries[entry.key] = entry

    def write_baseline(self) -> None:
        """Write the new measurements together with those of other tests."""
        measured = {key: entry.measurement for key, entry in self.entries.items()}
        merged = merge(self.baseline, measured, self.settings.root)
        write_baseline(self.settings.baseline, merged)


def parse_hbm_limit(limit: object) -> int | None:
    """The bytes of `14 GiB`, a number or a chip."""
    if limit is None or isinstance(limit, int):
        return limit
    return parse_capacity(str(limit)).size


def _place_of(line: str, root: Path) -> SourceLine | None:
    """A source line within the project; else None."""
    path, _, number = line.rpartition(":")
    if not path or not number.isdecimal() or not (root / path).is_file():
        return None
    return SourceLine(path, int(number))


class Entry(Struct, frozen=True, kw_only=True):
    key: str
    """The test, and the program's name if there are several."""
    measurement: Measurement
    before: Measurement | None = None
    limit: int | None = None
    problems: tuple[str, ...] = ()
    note: str = ""
    file: str = ""
    """The file of an annotation, with `line`: the line to look at, or else the test."""
    line: int = 1


def draw_annotations(entries: Sequence[Entry]) -> Iterator[str]:
    """A workflow command of GitHub for every problem."""
    for entry in entries:
        for problem in entry.problems:
            where = f"file={_property(entry.file)},line={entry.line}"
            yield f"::error {where},title=hlomem::{_data(f'{entry.key} {problem}')}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def draw_table(entries: Sequence[Entry]) -> str:
    """The measurements as a Markdown table, problems first."""
    ordered = sorted(entries, key=lambda entry: (not entry.problems, entry.key))
    rows = [_row(entry) for entry in ordered]
    head = ["| | program | target | needs | baseline | change | limit | most of it |"]
    return "\n".join(["### Memory of compiled programs", "", *head, "|" + "---|" * 8, *rows, ""])


def _row(entry: Entry) -> str:
    now, before = entry.measurement, entry.before
    comparable = before is not None and not entry.note
    delta = now.bytes - before.bytes if comparable and before is not None else 0
    change = "" if not comparable else signed(delta) if delta else "none"
    if delta and before is not None and before.bytes:
        change += f" ({'+' if delta > 0 else '-'}{percent(abs(delta), before.bytes)})"
    cells = [
        "❌" if entry.problems else "✅",
        f"`{entry.key}`",
        now.target,
        format_bytes(now.bytes),
        "new" if before is None else format_bytes(before.bytes),
        change or entry.note,
        "" if entry.limit is None else format_bytes(entry.limit),
        next((f"`{line}`" for line in now.lines), ""),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


_TOP = 5


class LimitVerdict(Struct, frozen=True, kw_only=True):
    problems: tuple[str, ...] = ()
    """The messages a test fails with, each of one or several lines."""
    note: str = ""
    """Why it was not compared."""
    line: str = ""
    """The source line to look at, if known."""


def compare(
    now: Measurement,
    *,
    limit: int | None = None,
    before: Measurement | None = None,
    tolerance: str = "1%",
) -> LimitVerdict:
    problems = []
    if limit is not None and now.bytes > limit:
        problems.append("\n".join(_over(now, limit)))
    note = "" if before is None else _why_not_compared(now, before)
    has_grown = (
        before is not None
        and not note
        and now.bytes > before.bytes + parse_limit(tolerance, before.bytes)
    )
    if has_grown and before is not None:
        problems.append("\n".join(_grown(now, before)))
    line = _line_of(now, before if has_grown else None) if problems else ""
    return LimitVerdict(problems=tuple(problems), note=note, line=line)


def explain_growth(before: MemoryView, after: MemoryView) -> str:
    return plain(draw_diff(build_diff(before, after), PIPED_WIDTH))


def _why_not_compared(now: Measurement, before: Measurement) -> str:
    if (now.target, now.space) != (before.target, before.space):
        return f"the baseline is of {before.target} ({before.space}): not compared"
    if now.versions != before.versions:
        return f"the baseline is of {_versions(before)}, this is {_versions(now)}: not compared"
    return ""


def _versions(measured: Measurement) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(measured.versions.items()))


def _over(now: Measurement, limit: int) -> Iterator[str]:
    missing = format_bytes(now.bytes - limit)
    space = space_label(now.space)
    yield (
        f"needs {format_bytes(now.bytes)} of {space} on {now.target},"
        f" the limit is {format_bytes(limit)}: over by {missing}"
    )
    for line, size in list(now.lines.items())[:_TOP]:
        yield f"  {format_bytes(size):>11}  {percent(size, now.peak):>6}  {line}"


def _grown(now: Measurement, before: Measurement) -> Iterator[str]:
    delta = now.bytes - before.bytes
    share = f"+{percent(delta, before.bytes)}" if before.bytes else "from nothing"
    yield (
        f"needs {format_bytes(now.bytes)} of {space_label(now.space)} on {now.target},"
        f" {signed(delta)} ({share}) against the baseline"
    )
    for name, size in _differences(now.roles, before.roles):
        yield f"  {signed(size):>11}  {name}"
    for name, size in _differences(now.lines, before.lines):
        yield f"  {signed(size):>11}  {name}"


def _differences(now: dict[str, int], before: dict[str, int]) -> list[tuple[str, int]]:
    """The largest changes, growth first."""
    deltas = {name: now.get(name, 0) - before.get(name, 0) for name in {*now, *before}}
    changed = [(name, size) for name, size in deltas.items() if size]
    return sorted(changed, key=lambda change: (-change[1], change[0]))[:_TOP]


def _line_of(now: Measurement, before: Measurement | None) -> str:
    grown = [] if before is None else _differences(now.lines, before.lines)
    if grown and grown[0][1] > 0:
        return grown[0][0]
    return max(now.lines, key=lambda line: now.lines[line], default="")
