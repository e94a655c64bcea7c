"""Buffers on both sides of a comparison: how many bytes each holds of what is reserved, and why.

In: pairs of buffers and the two sides. Out: a `Change` a pair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from hlomem.assign.footprint import reserved
from hlomem.dump.records import Record
from hlomem.report.data.memory import OwnedBytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.matching import Pair
    from hlomem.report.data.memory import Buffer, MemoryView, Space

ChangeKind: TypeAlias = Literal[
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


class Change(Record, frozen=True, kw_only=True):
    """One buffer on both sides, in bytes it holds of what is reserved."""

    kind: ChangeKind
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


class SharedOut:
    """The bytes one side reserves in a space, shared out among its buffers."""

    def __init__(self, memory: MemoryView, space: Space) -> None:
        self.memory = memory
        self.space = space
        self.step = memory.fullest_step(space.color)
        self.size_of: dict[int, int] = {}
        for buffer, size in iter_owners(memory, space.color, self.step):
            self.size_of[buffer.id] = self.size_of.get(buffer.id, 0) + size
        self.unused = space.size - sum(self.size_of.values())
        """Bytes that no buffer fills."""
        self.lodged: dict[int, int] = {}
        """Bytes of temporaries in the memory of arguments and results when theirs is fullest."""
        for buffer, size in iter_lodgers(memory, space.color, self.step):
            self.lodged[buffer.id] = self.lodged.get(buffer.id, 0) + size

    def life_of(self, buffer: Buffer) -> float:
        """The share of the schedule a buffer is alive."""
        if buffer.start is None or buffer.end is None:
            return 0.0
        return (buffer.end - buffer.start + 1) / (self.memory.steps + 1)


def iter_owners(memory: MemoryView, color: int, step: int | None) -> Iterator[OwnedBytes]:
    """The holders of the bytes of a space; a temporary only at the fullest step."""
    temporary = {allocation.index for allocation in memory.temporary_allocations(color)}
    for allocation in reserved(memory.joined.allocations, color):
        buffers = memory.buffers_in(allocation.index)
        if allocation.index in temporary and step is not None:
            yield from memory.share_out(allocation, step)[0]
        elif buffers:
            yield OwnedBytes(max(buffers, key=_claim), allocation.size)


def iter_lodgers(memory: MemoryView, color: int, step: int | None) -> Iterator[OwnedBytes]:
    """Temporaries that lie in the memory of an argument or a result at the fullest step."""
    temporary = {allocation.index for allocation in memory.temporary_allocations(color)}
    for allocation in memory.joined.allocations:
        if allocation.color != color or allocation.index in temporary or step is None:
            continue
        buffers = memory.buffers_in(allocation.index)
        hosts = {max(buffers, key=_claim).id, max(buffers, key=_last).id} if buffers else set()
        for owned in memory.share_out(allocation, step)[0]:
            if owned.buffer.id not in hosts:
                yield owned


def _last(buffer: Buffer) -> tuple[int, int]:
    """The value that is in an allocation last is the one the caller gets."""
    return (buffer.end or 0, buffer.id)


def _claim(buffer: Buffer) -> tuple[bool, int, int, int]:
    """An allocation of its own is a parameter's, or that of what is in it last."""
    return (buffer.opcode == "parameter", buffer.end or 0, buffer.size, -buffer.id)


def change_of(pair: Pair, before: SharedOut, after: SharedOut) -> Change:
    """The fate of a buffer."""
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


def _kind(pair: Pair, sizes: tuple[int, int], before: SharedOut, after: SharedOut) -> ChangeKind:
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
