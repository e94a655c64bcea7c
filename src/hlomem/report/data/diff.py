"""Two compiles of one program: where the bytes went, and why.

In: two dumps. Out: `Diff`. What XLA reserves in a memory space is shared out on both sides: an
allocation that is a parameter, a result or a constant belongs to its buffer, the temporaries'
memory to those alive when it is fullest, the rest is holes. Buffers are paired (`matching`), and
the differences, grouped, add up exactly from one side's bytes to the other's. So do the causes,
which are found in the programs first (`causes`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec.structs import replace

from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record
from hlomem.report.data.causes.cause import Cause
from hlomem.report.data.causes.changes import Change, SharedOut, change_of
from hlomem.report.data.causes.explain import find_causes
from hlomem.report.data.lookup import find_space
from hlomem.report.data.matching import match_buffers
from hlomem.report.data.peak import Key, key_of
from hlomem.report.data.side_names import distinct_names

if TYPE_CHECKING:
    from hlomem.report.data.memory import MemoryView, Space

__all__ = [
    "GROUPINGS",
    "UNUSED",
    "Cause",
    "Change",
    "Diff",
    "Grouping",
    "Row",
    "Side",
    "build_diff",
    "name_sides",
]

Grouping: TypeAlias = Literal["line", "op", "scope", "role", "shape"]
GROUPINGS: tuple[Grouping, ...] = ("line", "op", "scope", "role", "shape")
UNUSED = "(holes and alignment)"


class Side(Record, frozen=True, kw_only=True):
    """One of the two compiles."""

    name: str
    program: str
    """The program's own name."""
    chosen: str
    """`the largest of 3 programs`, where it is one of several that were given; else empty."""
    size: int
    """The bytes XLA reserves in the memory space."""
    peak: int | None
    """Bytes alive at the peak; None without live ranges."""
    step: int | None
    """The step at which the temporaries need most, which decides what XLA reserves for them."""
    steps: int


class Row(Record, frozen=True, kw_only=True):
    """The changes of one group."""

    key: str
    before_size: int
    after_size: int
    kinds: dict[str, int]
    """How many buffers changed how."""
    largest: Change | None
    """The largest change of the group."""

    @property
    def delta(self) -> int:
        """Bytes more."""
        return self.after_size - self.before_size


class Diff(Record, frozen=True, kw_only=True):
    """The difference between two compiles in one memory space."""

    space: str
    by: Grouping
    before: Side
    after: Side
    delta: int
    """Bytes more that are reserved."""
    causes: tuple[Cause, ...]
    """The causes, the one that explains most first."""
    rows: tuple[Row, ...]
    """Largest difference first; they add up to `delta`."""
    matched: int
    """How many buffers have a partner."""
    unmatched: int

    def __str__(self) -> str:
        """The screen of `hlomem diff`; found by name, as data knows nothing of screens."""
        return str(import_module("hlomem.report.screens.diff_text").format_diff(self))

    def __repr__(self) -> str:
        sizes = f"{format_bytes(self.before.size)} → {format_bytes(self.after.size)}"
        return f"<Diff of {self.space}: {sizes}, {len(self.causes)} causes>"


def build_diff(
    before: MemoryView, after: MemoryView, *, by: Grouping = "line", space: str | None = None
) -> Diff:
    """The difference between two memories in one space."""
    spaces = find_space(before, space), find_space(after, space)
    if after.joined is before.joined:
        return _no_difference(before, after, spaces[1], by)
    old, new = SharedOut(before, spaces[0]), SharedOut(after, spaces[1])
    pairs = match_buffers(before, after)
    changes = [change_of(pair, old, new) for pair in pairs]
    return Diff(
        space=new.space.name,
        by=by,
        before=_side(before, old.space),
        after=_side(after, new.space),
        delta=new.space.size - old.space.size,
        causes=tuple(find_causes(old, new, changes)),
        rows=tuple(_rows(changes, (old.unused, new.unused), by)),
        matched=sum(None not in pair for pair in pairs),
        unmatched=sum(None in pair for pair in pairs),
    )


def _no_difference(before: MemoryView, after: MemoryView, space: Space, by: Grouping) -> Diff:
    """The difference between two views of the same records: every buffer is its own partner.

    Of equal keys there are equally many on both sides, in one order, and what has no other key has
    its kind; no row has other bytes then, and no cause anything to explain.
    """
    return Diff(
        space=space.name,
        by=by,
        before=_side(before, space),
        after=_side(after, space),
        delta=0,
        causes=(),
        rows=(),
        matched=len(before.joined.placed),
        unmatched=0,
    )


def name_sides(found: Diff, before: str, after: str) -> Diff:
    """The same difference, its sides named by what differs between their paths."""
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


def _rows(changes: list[Change], unused: tuple[int, int], by: Key) -> list[Row]:
    """The groups whose bytes differ; a pair counts where its later buffer belongs."""
    groups: dict[str, list[Change]] = {}
    for change in changes:
        groups.setdefault(key_of(change.buffer, by), []).append(change)
    rows = [_row(key, members) for key, members in groups.items()]
    rows.append(
        Row(key=UNUSED, before_size=unused[0], after_size=unused[1], kinds={}, largest=None)
    )
    rows = [row for row in rows if row.before_size != row.after_size]
    return sorted(rows, key=lambda row: (-abs(row.delta), row.key))


def _row(key: str, changes: list[Change]) -> Row:
    moved = [change for change in changes if change.delta]
    kinds: dict[str, int] = {}
    for change in moved:
        kinds[change.kind] = kinds.get(change.kind, 0) + 1
    return Row(
        key=key,
        before_size=sum(change.before_size for change in changes),
        after_size=sum(change.after_size for change in changes),
        kinds=kinds,
        largest=max(moved, key=lambda change: abs(change.delta), default=None),
    )
