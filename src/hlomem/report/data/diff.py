"""Two compiles of one program: where the bytes went, and why.

In: two dumps. Out: `Diff`. What XLA reserves in a memory space is shared out on both sides: an
allocation that is a parameter, a result or a constant belongs to its buffer, the temporaries'
memory to those alive when it is fullest, the rest is holes. Buffers are paired (`matching`), and
the differences, grouped, add up exactly from one side's bytes to the other's.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record
from hlomem.report.data import roles
from hlomem.report.data.lookup import find_space
from hlomem.report.data.matching import Pair, match_buffers
from hlomem.report.data.memory import OwnedBytes, build_memory
from hlomem.report.data.peak import key_of
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.dump.dump import Dump
    from hlomem.hlo.ir import HloModule
    from hlomem.report.data.memory import Buffer, MemoryView, Space
    from hlomem.report.data.peak import Key

Grouping: TypeAlias = Literal["line", "op", "scope", "role", "shape"]
GROUPINGS: tuple[Grouping, ...] = ("line", "op", "scope", "role", "shape")
Kind: TypeAlias = Literal[
    "new",
    "vanished",
    "grown",
    "shrunk",
    "lives longer",
    "lives shorter",
    "now at the peak",
    "no longer at the peak",
    "moved here",
    "moved away",
    "shares otherwise",
    "same",
]
UNUSED = "(holes and alignment)"
_RECOMPUTED = "rematted_computation"
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_MAX_NAMES = 3


class Side(Record, frozen=True, kw_only=True):
    """One of the two compiles."""

    name: str
    size: int
    """What XLA reserves in the memory space."""
    peak: int | None
    """Bytes alive at the peak; None without live ranges."""
    step: int | None
    """When the temporaries need most, which decides what XLA reserves for them."""
    steps: int


class Change(Record, frozen=True, kw_only=True):
    """One buffer on both sides, in bytes it holds of what is reserved."""

    kind: Kind
    before: Buffer | None
    after: Buffer | None
    before_size: int
    after_size: int

    @property
    def buffer(self) -> Buffer:
        """The buffer, as it is after if it is."""
        buffer = self.after or self.before
        assert buffer is not None
        return buffer

    @property
    def delta(self) -> int:
        """Bytes more."""
        return self.after_size - self.before_size


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


class Cause(Record, frozen=True, kw_only=True):
    """Something that happened to several buffers at once."""

    text: str
    delta: int
    """Bytes more through it."""
    count: int


class Diff(Record, frozen=True, kw_only=True):
    """The difference between two compiles in one memory space."""

    space: str
    by: Grouping
    before: Side
    after: Side
    delta: int
    """Bytes more that are reserved."""
    causes: tuple[Cause, ...]
    """What explains most, first."""
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


def diff(
    before: Dump,
    after: Dump,
    *,
    before_module: HloModule | None = None,
    after_module: HloModule | None = None,
    by: Grouping = "line",
    space: str | None = None,
) -> Diff:
    """What changed from one compile of a program to another; modules give source lines."""
    memories = build_memory(before, before_module), build_memory(after, after_module)
    return build_diff(*memories, by=by, space=space)


def build_diff(
    before: MemoryView, after: MemoryView, *, by: Grouping = "line", space: str | None = None
) -> Diff:
    """The difference between two memories in one space."""
    sides = [_Shared(each, find_space(each, space)) for each in (before, after)]
    pairs = match_buffers(before, after)
    changes = [_change(pair, *sides) for pair in pairs]
    unused = sides[0].unused, sides[1].unused
    delta = sides[1].space.size - sides[0].space.size
    return Diff(
        space=sides[1].space.name,
        by=by,
        before=sides[0].side,
        after=sides[1].side,
        delta=delta,
        causes=tuple(
            _causes(changes, unused, delta, after.module.num_partitions if after.module else 1)
        ),
        rows=tuple(_rows(changes, unused, by)),
        matched=sum(None not in pair for pair in pairs),
        unmatched=sum(None in pair for pair in pairs),
    )


class _Shared:
    """What one side reserves, shared out among its buffers."""

    def __init__(self, memory: MemoryView, space: Space) -> None:
        self.memory = memory
        self.space = space
        self.step = memory.fullest_step(space.color)
        held = list(iter_owners(memory, space.color, self.step))
        self.size_of: dict[int, int] = {}
        for buffer, size in held:
            self.size_of[buffer.id] = self.size_of.get(buffer.id, 0) + size
        self.unused = space.size - sum(self.size_of.values())

    @property
    def side(self) -> Side:
        """The side as data."""
        timeline = self.memory.timeline(self.space.color)
        return Side(
            name=self.memory.dump.title,
            size=self.space.size,
            peak=timeline.peak.size if timeline else None,
            step=self.step,
            steps=self.memory.steps,
        )

    def life_of(self, buffer: Buffer) -> float:
        """The share of the schedule a buffer is alive."""
        if buffer.start is None or buffer.end is None:
            return 0.0
        return (buffer.end - buffer.start + 1) / (self.memory.steps + 1)


def iter_owners(memory: MemoryView, color: int, step: int | None) -> Iterator[OwnedBytes]:
    """Who holds the bytes of a space; a temporary only at the fullest step."""
    temporary = {each.index for each in memory.temporary_allocations(color)}
    for allocation in memory.joined.allocations:
        if allocation.color != color:
            continue
        buffers = memory.buffers_in(allocation.index)
        if allocation.index in temporary and step is not None:
            yield from memory.share_out(allocation, step)[0]
        elif buffers:
            yield OwnedBytes(max(buffers, key=_claim), allocation.size)


def _claim(buffer: Buffer) -> tuple[bool, int, int, int]:
    """An allocation of its own is a parameter's, or that of what is in it last."""
    return (buffer.opcode == "parameter", buffer.end or 0, buffer.size, -buffer.id)


# Changes


def _change(pair: Pair, before: _Shared, after: _Shared) -> Change:
    sizes = (
        before.size_of.get(pair.before.id, 0) if pair.before else 0,
        after.size_of.get(pair.after.id, 0) if pair.after else 0,
    )
    return Change(
        kind=_kind(pair, sizes, before, after),
        before=pair.before,
        after=pair.after,
        before_size=sizes[0],
        after_size=sizes[1],
    )


def _kind(pair: Pair, sizes: tuple[int, int], before: _Shared, after: _Shared) -> Kind:
    if pair.before is None:
        return "new"
    if pair.after is None:
        return "vanished"
    here = pair.before.color == before.space.color, pair.after.color == after.space.color
    if here[0] != here[1]:
        return "moved here" if here[1] else "moved away"
    if pair.before.size != pair.after.size:
        return "grown" if pair.after.size > pair.before.size else "shrunk"
    if sizes[0] == sizes[1]:
        return "same"
    lives = before.life_of(pair.before), after.life_of(pair.after)
    if not sizes[0]:
        return "lives longer" if lives[1] > lives[0] else "now at the peak"
    if not sizes[1]:
        return "lives shorter" if lives[1] < lives[0] else "no longer at the peak"
    return "shares otherwise"


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
        largest=max(moved, key=lambda each: abs(each.delta), default=None),
    )


# Causes


class _Reason(NamedTuple):
    """Why a buffer's bytes differ, in a form that equal reasons share."""

    kind: str
    old: str = ""
    new: str = ""


_DONATION_LOST = _Reason("role", roles.DONATED, roles.OUTPUTS)
_DONATION_WON = _Reason("role", roles.OUTPUTS, roles.DONATED)
_KEPT = frozenset({roles.STACKED, roles.ACTIVATIONS})
_TEXTS = {
    "new": "{new}: {count} new",
    "vanished": "{old}: {count} gone",
    "lives longer": "{new}: {count} alive longer, now when most is needed",
    "lives shorter": "{old}: {count} alive shorter, not when most is needed any more",
    "now at the peak": "{new}: {count} alive when most is needed, which is at another step",
    "no longer at the peak": "{old}: {count} not alive when most is needed, at another step",
    "moved here": "{new}: {count} in another memory space before",
    "moved away": "{old}: {count} in another memory space now",
    "shares otherwise": "{new}: {count} sharing memory with others",
    "into result": "{old}: {count} in memory of results now",
    "out of result": "{new}: {count} no longer in memory of results",
    "role": "{count} changed from {old} to {new}",
    "size": "{new}: {count} of another size",
    "padding": "{new}: {count} padded otherwise",
    "type": "{old} became {new} in {count}",
    "dimension": "dimension {old} became {new} in {count}",
}


def _causes(
    changes: list[Change], unused: tuple[int, int], delta: int, partitions: int
) -> list[Cause]:
    """What happened to several buffers at once; what explains most first. They add up."""
    by_reason: dict[_Reason, list[Change]] = {}
    for change in changes:
        if change.delta:
            by_reason.setdefault(_reason(change), []).append(change)
    said = CauseWording(changes, partitions)
    causes = [
        Cause(
            text=said.text(reason, members),
            delta=sum(each.delta for each in members),
            count=len(members),
        )
        for reason, members in by_reason.items()
    ]
    if holes := unused[1] - unused[0]:
        causes.append(Cause(text="memory that nobody fills (holes)", delta=holes, count=0))
    sign = 1 if delta >= 0 else -1
    return sorted(causes, key=lambda each: (-sign * each.delta, each.text))


def _reason(change: Change) -> _Reason:
    before, after = change.before, change.after
    if before is None or after is None:
        return _Reason(change.kind, before.role if before else "", after.role if after else "")
    if change.kind not in {"grown", "shrunk"}:
        moved = change.kind in {"moved here", "moved away"}
        kind = change.kind if moved else _role_change(change.kind, before.role, after.role)
        return _Reason(kind, before.role, after.role)
    old, new = _ARRAY.match(before.shape), _ARRAY.match(after.shape)
    if old is None or new is None:
        return _Reason("size", before.role, after.role)
    if old[2] != new[2]:
        return _Reason("dimension", *_different(old[2].split(","), new[2].split(",")))
    if old[1] != new[1]:
        return _Reason("type", old[1], new[1])
    return _Reason("padding", before.role, after.role)


def _role_change(kind: str, old: str, new: str) -> str:
    """What it means that a buffer's role changed; `kind` where it did not."""
    if old == new:
        return kind
    if roles.DONATED in {old, new} or roles.OUTPUTS not in {old, new}:
        return "role"
    return "into result" if new == roles.OUTPUTS else "out of result"


def _different(old: list[str], new: list[str]) -> tuple[str, str]:
    """The first dimension that differs, before and after; the whole shape for another rank."""
    if len(old) != len(new):
        return f"[{','.join(old)}]", f"[{','.join(new)}]"
    return next((a, b) for a, b in zip(old, new, strict=True) if a != b)


class CauseWording:
    """Puts reasons into words, with what is known about the program as a whole."""

    def __init__(self, changes: list[Change], partitions: int) -> None:
        self._changes = changes
        self._partitions = partitions

    def text(self, reason: _Reason, members: list[Change]) -> str:
        """A reason in words."""
        if reason in {_DONATION_LOST, _DONATION_WON}:
            return self._about_donation(reason)
        count = plural(len(members), "buffer")
        text = _TEXTS[reason.kind].format(old=reason.old, new=reason.new, count=count)
        if reason.kind == "dimension":
            text += self._about_arguments(reason, members)
        if reason.kind in {"new", "vanished"} and (reason.old or reason.new) in _KEPT:
            text = self._about_recomputation() + text
        return text

    def _about_donation(self, reason: _Reason) -> str:
        lost = reason == _DONATION_LOST
        names = [
            each.buffer.parameter or each.buffer.name
            for each in self._changes
            if each.before is not None
            and each.after is not None
            and each.after.opcode == "parameter"
            and (each.before if lost else each.after).role == roles.DONATED
            and (each.after if lost else each.before).role != roles.DONATED
        ]
        if lost:
            return f"no longer donated: {_listed(names)}; results take memory of their own"
        return f"now donated: {_listed(names)}; results take their memory"

    def _about_arguments(self, reason: _Reason, members: list[Change]) -> str:
        names = [each.buffer.parameter for each in members if each.buffer.parameter]
        if not names:
            return ""
        hint = ""
        if reason.old.isdecimal() and int(reason.new) == int(reason.old) * self._partitions:
            hint = f", as if no longer sharded over {self._partitions} partitions"
        return f", of arguments {_listed(names)}{hint if self._partitions > 1 else ''}"

    def _about_recomputation(self) -> str:
        before = any(_RECOMPUTED in (c.before.op_name or "") for c in self._changes if c.before)
        after = any(_RECOMPUTED in (c.after.op_name or "") for c in self._changes if c.after)
        if before == after:
            return ""
        return "kept, no longer recomputed: " if before else "recomputed, no longer kept: "


def _listed(names: list[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
