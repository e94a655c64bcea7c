"""`Dump`: the records of all files XLA wrote about one program's memory."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import Struct

from hlomem.base.errors import ParseError
from hlomem.base.source import Source, Span, visible
from hlomem.dump.eras import Era, Features, describe, recognise
from hlomem.dump.file_names import Kind, program_name
from hlomem.dump.parts import Contents, Part, format_part
from hlomem.dump.records import AllocationReport, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hlomem.dump.codegen import CodegenTexts
    from hlomem.dump.records import (
        Allocation,
        Assignment,
        LiveRanges,
        ReportedAllocation,
        UsageReport,
        Values,
    )
    from hlomem.hlo.ir import HloModule

T = TypeVar("T")

_WORDS: Mapping[Kind, str] = {
    "assignment": "allocations (*-buffer-assignment.txt)",
    "values": "values (*-buffer-assignment-values.txt)",
    "live-range": "live ranges (*-live-range.txt)",
    "report": "usage report (*-memory-usage-report.txt)",
}
_BEGINNINGS: Mapping[Kind, str] = {"values": "Total bytes used: ", "live-range": "HloLiveRange"}
_MAX_NAME = 80
_SPLIT: tuple[Kind, ...] = ("assignment", "values", "live-range")
"""The parts that are one file up to jaxlib 0.9, and three files since."""


class Note(Record, frozen=True, kw_only=True):
    kind: Literal["kept", "missing", "contradiction"]
    text: str


class Dump(Struct, frozen=True, eq=False, dict=True):
    """The memory plan of one program, from XLA's files."""

    name: str
    """The file or module it came from."""
    parts: tuple[Part, ...]
    eras: tuple[Era, ...]
    """The versions of the format that its text matches, oldest first."""
    chosen: str = ""
    """Why it was chosen among several: `the largest of 3 programs`."""
    open_module: Callable[[], HloModule] | None = None
    """Reads its program; None if unknown."""
    open_whole: Callable[[], HloModule] | None = None
    """Reads its program before it was optimized and partitioned; None if unknown."""
    remarks: tuple[Note, ...] = ()
    """Notes from outside its files."""
    open_codegen: Callable[[], CodegenTexts] | None = None
    """Reads the texts libtpu wrote after code generation; None without them."""

    @property
    def title(self) -> str:
        """The author's name for the program, if XLA's name contains it: `train_step`."""
        return program_name(self.name)

    @cached_property
    def module(self) -> HloModule | None:
        """Its program, if known."""
        return None if self.open_module is None else self.open_module()

    @cached_property
    def whole(self) -> HloModule | None:
        """Its program before it was optimized and partitioned, if known."""
        return None if self.open_whole is None else self.open_whole()

    @property
    def era(self) -> Era:
        """The newest version of the format that its text matches."""
        return self.eras[-1]

    @cached_property
    def assignment(self) -> Assignment | None:
        return _first(part.contents.assignment for part in self.parts)

    @cached_property
    def values(self) -> Values | None:
        return _first(part.contents.values for part in self.parts)

    @cached_property
    def live_ranges(self) -> LiveRanges | None:
        """The schedule, live ranges and the peak."""
        return _first(part.contents.live_ranges for part in self.parts)

    @property
    def report(self) -> UsageReport | None:
        found: Iterable[UsageReport | None] = [part.contents.report for part in self.parts]
        return next((report for report in found if report is not None), None)

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes on unparsed text, missing parts and contradictions."""
        return (*self.remarks, *_kept(self.parts), *_missing(self), *_contradictions(self))

    def texts(self, era: Era | None = None) -> dict[str, str]:
        """The text of each file by name, in the format of `era`, by default the dump's own."""
        return {part.name: self.part_text(part, era) for part in self.parts}

    def part_text(self, part: Part, era: Era | None = None) -> str:
        return part.wrapping.restore(format_part(part.kind, part.contents, era or self.era))

    def to_text(self, era: Era | None = None) -> str:
        """The concatenated text of all files."""
        return "".join(self.part_text(part, era) for part in self.parts)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        name = self.title if len(self.title) <= _MAX_NAME else f"…{self.title[1 - _MAX_NAME :]}"
        chosen = f", {self.chosen}" if self.chosen else ""
        allocations = self.assignment.allocations if self.assignment else ()
        return f"<Dump {name!r}{chosen}: {len(allocations)} allocations, era {self.era.letter}>"

    def _repr_html_(self) -> str:
        """The report, for notebooks."""
        from hlomem.base.notebook import in_notebook  # noqa: PLC0415 - only a notebook needs it

        return in_notebook(self)


def _first(found: Iterable[T | None]) -> T | None:
    return next((item for item in found if item is not None), None)


def join_parts(name: str, parts: Sequence[Part]) -> Dump:
    """One dump from its files, which must not hold the same kind of records twice."""
    holder: dict[Kind, Part] = {}
    for part in parts:
        for kind in _kinds_in(part):
            if holder.setdefault(kind, part) is not part:
                raise _held_twice(holder[kind], part, kind)
    seen = Features()
    for part in parts:
        seen = seen.merged_with(part.seen)
    return Dump(name, tuple(parts), recognise(seen))


def _held_twice(first: Part, second: Part, kind: Kind) -> ParseError:
    """The error at the section of the second file that duplicates the first."""
    text = Dump(second.name, (second,), recognise(second.seen)).to_text()
    start = text.index(_BEGINNINGS.get(kind, ""))
    span = Span(start, text.find("\n", start))
    problem = f"two files hold {_WORDS[kind]}: {visible(first.name)} is the other"
    return ParseError(Source(second.name, text), span, problem, "give one dump at a time")


def _kinds_in(part: Part) -> tuple[Kind, ...]:
    return _SPLIT if part.kind == "combined" else (part.kind,)


def _kept(parts: Sequence[Part]) -> list[Note]:
    notes = []
    for part in parts:
        wrapping = part.wrapping
        if wrapping.has_bom:
            notes.append(f"{part.name}: begins with a byte-order mark")
        if wrapping.has_crlf:
            notes.append(rf"{part.name}: lines end with \r\n")
        if wrapping.undecodable_line is not None:
            notes.append(f"{part.name}:{wrapping.undecodable_line}: bytes that are not UTF-8")
        notes += [
            f"{part.name}:{line.line}: log line is not of the dump: {line.text}"
            for line in wrapping.foreign_lines
        ]
        notes += [
            f"{part.name}: allocation {allocation.index} has an unknown attribute: {unknown.text}"
            for allocation in _allocations(part.contents)
            for unknown in allocation.unknown
        ]
    return [Note(kind="kept", text=text) for text in notes]


def _allocations(contents: Contents) -> Iterable[Allocation | ReportedAllocation]:
    """The allocation headers in a file, those of a report once."""
    if contents.assignment is not None:
        return contents.assignment.allocations
    if isinstance(contents.report, AllocationReport):
        return [detail.allocation for detail in contents.report.details]
    return ()


def _missing(dump: Dump) -> list[Note]:
    kinds = {kind for part in dump.parts for kind in _kinds_in(part)}
    return [
        Note(kind="missing", text=f"no {_WORDS[kind]} next to {dump.name}")
        for kind in _SPLIT
        if kind not in kinds
    ]


def _contradictions(dump: Dump) -> list[Note]:
    texts = []
    if dump.eras[0].letter == "?":
        texts.append(f"{describe(dump.eras)}; read and printed unchanged")
    if dump.assignment is not None and dump.values is not None:
        texts += _assignment_against_values(dump.assignment, dump.values)
    if dump.live_ranges is not None:
        texts += _peak_against_ranges(dump.live_ranges)
    return [Note(kind="contradiction", text=text) for text in texts]


def _assignment_against_values(assignment: Assignment, values: Values) -> list[str]:
    texts = []
    total = sum(allocation.size for allocation in assignment.allocations)
    if total != values.total_bytes:
        said = values.total_bytes
        texts.append(f"allocations hold {total} bytes, `Total bytes used` says {said}")
    assigned = sorted([v.id for allocation in assignment.allocations for v in allocation.values])
    used = sorted([value.id for value in values.values])
    if assigned != used:
        more, fewer = Counter(assigned), Counter(used)
        odd = sorted({*(more - fewer), *(fewer - more)})
        shown = ", ".join(map(str, odd[:5])) + (", …" if len(odd) > 5 else "")
        texts.append(f"allocations and `Used values` list different values: {shown}")
    return texts


def _peak_against_ranges(live: LiveRanges) -> list[str]:
    texts = []
    if live.end != len(live.sequence):
        texts.append(f"the sequence has {len(live.sequence)} steps, its head says {live.end}")
    if (peak := live.peak) is None:
        return texts
    alive = Counter([r.instruction for r in live.ranges if r.is_live_at(peak.moment)])
    listed = Counter([buffer.instruction for buffer in peak.buffers])
    if alive != listed:
        odd = ", ".join(sorted({*(alive - listed), *(listed - alive)})[:5])
        texts.append(f"live ranges and the list at the peak disagree about {odd}")
    total = sum(buffer.size for buffer in peak.buffers)
    if peak.stack_trace is not None and peak.stack_trace.total != total:
        texts.append(f"buffers at the peak hold {total} bytes, the tree {peak.stack_trace.total}")
    return texts
