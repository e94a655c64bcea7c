"""A run of tests: what is measured in it, held against limits and baselines, and written down.

In: the settings of the run. Out: for each program the sentences its test fails with; at the end the
new baseline, annotations and the table. Tests may run in other processes than the one that writes:
a measurement travels as JSON.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from hlomem.base.errors import HlomemError
from hlomem.machines.capacity import parse_capacity
from hlomem.testing.baseline import merge, read_baseline, write_baseline
from hlomem.testing.measurement import Measurement, measure
from hlomem.testing.programs import open_program, save_program
from hlomem.testing.summaries import Entry
from hlomem.testing.verdict import Verdict, explain_growth, judge

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.api.explain import MemoryExplanation


class Settings(NamedTuple):
    """How a run was asked for."""

    root: Path
    baseline: Path
    tolerance: str
    updates: bool
    programs: Path | None
    """The folder of the dumps of the baseline's programs; None where none are kept."""


class Place(NamedTuple):
    """A test, for annotations."""

    file: str
    line: int


class Session:
    """The measurements of a run."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.entries: dict[str, Entry] = {}

    @cached_property
    def baseline(self) -> dict[str, Measurement]:
        """The programs as they were; a file that is written anew need not be readable."""
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
        place: Place,
        *,
        target: str | None = None,
        limit: int | None = None,
    ) -> Entry:
        """Measure a program and hold it against its limit and what it was."""
        now = measure(memory, target, self.settings.root)
        before = self.baseline.get(key)
        held = None if self.settings.updates else before
        verdict = judge(now, limit=limit, before=held, tolerance=self.settings.tolerance)
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

    def _with_program(self, key: str, memory: MemoryExplanation, verdict: Verdict) -> Verdict:
        """The verdict with the difference in full; an update keeps the program for the next."""
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
        """Take an entry that another process, or this one, has made."""
        entry = msgspec.convert(data, Entry)
        self.entries[entry.key] = entry

    def write_baseline(self) -> None:
        """Write what was measured, beside what is known of other tests."""
        measured = {key: entry.measurement for key, entry in self.entries.items()}
        merged = merge(self.baseline, measured, self.settings.root)
        write_baseline(self.settings.baseline, merged)


def parse_hbm_limit(limit: object, target: str | None) -> int | None:
    """The bytes of `14 GiB`, of a number, of a chip; of the target's chip where none is given."""
    if isinstance(limit, int):
        return limit
    if limit is not None:
        return parse_capacity(str(limit)).size
    if target is None or "-" not in target:
        return None
    return parse_capacity(target.partition("-")[2].partition(":")[0]).size


def _place_of(line: str, root: Path) -> Place | None:
    """A source line of the project; None for one that is not in it."""
    path, _, number = line.rpartition(":")
    if not path or not number.isdecimal() or not (root / path).is_file():
        return None
    return Place(path, int(number))
