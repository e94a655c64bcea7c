"""Two compiles of one program: paired buffers, and causes that add up to the difference."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec.structs import replace

from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record
from hlomem.report.data.causes.explain import find_causes
from hlomem.report.data.causes.ledger import Change, SharedOut, change_of
from hlomem.report.data.lookup import find_space
from hlomem.report.data.matching import match_buffers
from hlomem.report.data.names import distinct_names
from hlomem.report.data.peak import Key, key_of

if TYPE_CHECKING:
    from hlomem.report.data.causes.cause import Cause
    from hlomem.report.data.memory import MemoryView, Space

Grouping: TypeAlias = Literal["line", "op", "scope", "role", "shape"]
GROUPINGS: tuple[Grouping, ...] = ("line", "op", "scope", "role", "shape")
UNUSED = "(holes and alignment)"


class Side(Record, frozen=True, kw_only=True):
    name: str
    program: str
    chosen: str
    """`the largest of 3 programs`; empty if there was only one."""
    size: int
    peak: int | None
    """Bytes alive at the peak; None without live ranges."""
    step: int | None
    steps: int


class DiffRow(Record, frozen=True, kw_only=True):
    key: str
    before_size: int
    after_size: int
    kinds: dict[str, int]
    """The number of buffers per kind of change."""
    largest: Change | None

    @property
    def delta(self) -> int:
        return self.after_size - self.before_size


class Diff(Record, frozen=True, kw_only=True):
    """The difference between two compiles in one memory space."""

    space: str
    by: Grouping
    before: Side
    after: Side
    delta: int
    causes: tuple[Cause, ...]
    """Largest contribution first."""
    rows: tuple[DiffRow, ...]
    """Largest difference first; they add up to `delta`."""
    matched: int
    unmatched: int

    def __str__(self) -> str:
        """The screen of `hlomem diff`; imported by name, since data must not import screens."""
        return str(import_module("hlomem.report.screens.diff_text").format_diff(self))

    def __repr__(self) -> str:
        sizes = f"{format_bytes(self.before.size)} → {format_bytes(self.after.size)}"
        return f"<Diff of {self.space}: {sizes}, {len(self.causes)} causes>"


def build_diff(
    before: MemoryView, after: MemoryView, *, by: Grouping = "line", space: str | None = None
) -> Diff:
    here, there = find_space(before, space), find_space(after, space)
    made = Diff(
        space=there.name,
        by=by,
        before=_side(before, here),
        after=_side(after, there),
        delta=there.size - here.size,
        causes=(),
        rows=(),
        matched=len(before.joined.placed),
        unmatched=0,
    )
    if after.joined is before.joined:  # the same records: every buffer is its own partner
        return made
    old, new = SharedOut(before, here), SharedOut(after, there)
    pairs = match_buffers(before, after)
    changes = [change_of(pair, old, new) for pair in pairs]
    return replace(
        made,
        causes=tuple(find_causes(old, new, changes)),
        rows=tuple(_rows(changes, (old.unused, new.unused), by)),
        matched=sum(None not in pair for pair in pairs),
        unmatched=sum(None in pair for pair in pairs),
    )


def name_sides(found: Diff, before: str, after: str) -> Diff:
    """The same difference, with sides named by the differing parts of their paths."""
    names = distinct_names(before, after)
    return replace(
        found,
        before=replace(found.before, name=names[0]),
        after=replace(found.after, name=names[1]),
    )


def _side(memory: MemoryView, space: Space) -> Side:
    timeline = memory.timeline(space.color)
    dump = memory.dump
    return Side(
        name=dump.name,
        program=dump.title,
        chosen=dump.chosen,
        size=space.size,
        peak=timeline.peak.size if timeline else None,
        step=memory.fullest_step(space.color),
        steps=memory.steps,
    )


def _rows(changes: list[Change], unused: tuple[int, int], by: Key) -> list[DiffRow]:
    """The groups whose bytes differ; a pair belongs to the group of its later buffer."""
    groups: dict[str, list[Change]] = {}
    for change in changes:
        groups.setdefault(key_of(change.buffer, by), []).append(change)
    rows = [_row(key, members) for key, members in groups.items()]
    rows.append(
        DiffRow(key=UNUSED, before_size=unused[0], after_size=unused[1], kinds={}, largest=None)
    )
    rows = [row for row in rows if row.before_size != row.after_size]
    return sorted(rows, key=lambda row: (-abs(row.delta), row.key))


def _row(key: str, changes: list[Change]) -> DiffRow:
    moved = [change for change in changes if change.delta]
    kinds: dict[str, int] = {}
    for change in moved:
        kinds[change.kind] = kinds.get(change.kind, 0) + 1
    return DiffRow(
        key=key,
        before_size=sum(change.before_size for change in changes),
        after_size=sum(change.after_size for change in changes),
        kinds=kinds,
        largest=max(moved, key=lambda change: abs(change.delta), default=None),
    )
