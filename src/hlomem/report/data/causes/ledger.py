"""The bytes of a difference: one `Change` per pair of buffers, and the ledger of their causes.

Entries are signed. `lodged` balances temporaries inside a result's memory; entries, `lodged` and
`holes` add up to the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from hlomem.assign.footprint import reserved
from hlomem.dump.records import Record
from hlomem.report.data.memory import Buffer, MemoryView, OwnedBytes, Space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hlomem.report.data.matching import Pair


BEFORE, AFTER = 0, 1


class Entry(NamedTuple):
    """Bytes of one buffer on one side, BEFORE (negative) or AFTER."""

    change: Change
    side: int
    size: int
    is_lodged: bool = False
    """Whether the bytes lie in memory reserved for another value."""

    @property
    def buffer(self) -> Buffer:
        buffer = self.change.after if self.side else self.change.before
        assert buffer is not None
        return buffer

    @property
    def partner(self) -> Buffer | None:
        return self.change.before if self.side else self.change.after


class Booking(NamedTuple):
    size: int
    buffers: int


def booked(entries: Iterable[Entry]) -> Booking:
    """The sum of some entries; buffers of the same size before and after are not counted."""
    nets: dict[int, int] = {}
    for entry in entries:
        key = id(entry.change)
        nets[key] = nets.get(key, 0) + entry.size
    return Booking(sum(nets.values()), sum(net != 0 for net in nets.values()))


class Ledger:
    def __init__(self, before: SharedOut, after: SharedOut, changes: Iterable[Change]) -> None:
        self.open: list[Entry] = list(_entries(before, after, changes))
        self.holes = after.unused - before.unused
        self.lodged = sum(before.lodged.values()) - sum(after.lodged.values())
        """Additional bytes that temporaries need since fewer lie inside results' memory."""

    def take_holes(self) -> int:
        size, self.holes = self.holes, 0
        return size

    def take_lodged(self) -> int:
        size, self.lodged = self.lodged, 0
        return size

    def take(self, wanted: Callable[[Entry], bool]) -> list[Entry]:
        taken = [entry for entry in self.open if wanted(entry)]
        gone = set(map(id, taken))
        self.open = [entry for entry in self.open if id(entry) not in gone]
        return taken


def _entries(before: SharedOut, after: SharedOut, changes: Iterable[Change]) -> Iterator[Entry]:
    for change in changes:
        if change.before and (size := before.lodged.get(change.before.id)):
            yield Entry(change, BEFORE, -size, is_lodged=True)
        if change.after and (size := after.lodged.get(change.after.id)):
            yield Entry(change, AFTER, size, is_lodged=True)
        if change.before_size:
            yield Entry(change, BEFORE, -change.before_size)
        if change.after_size:
            yield Entry(change, AFTER, change.after_size)


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
    """One buffer on both sides, with the reserved bytes it accounts for."""

    kind: ChangeKind
    before: Buffer | None
    after: Buffer | None
    before_size: int
    after_size: int

    @property
    def buffer(self) -> Buffer:
        """The buffer after the change, or before it if it vanished."""
        buffer = self.after or self.before
        assert buffer is not None
        return buffer

    @property
    def delta(self) -> int:
        return self.after_size - self.before_size


class SharedOut:
    """The bytes one side reserves in a space, distributed over its buffers."""

    def __init__(self, memory: MemoryView, space: Space) -> None:
        self.memory = memory
        self.space = space
        self.step = memory.fullest_step(space.color)
        self.size_of: dict[int, int] = {}
        for buffer, size in iter_owners(memory, space.color, self.step):
            self.size_of[buffer.id] = self.size_of.get(buffer.id, 0) + size
        self.unused = space.size - sum(self.size_of.values())
        self.lodged: dict[int, int] = {}
        """Bytes of temporaries inside the memory of arguments and results at the peak."""
        for buffer, size in iter_lodgers(memory, space.color, self.step):
            self.lodged[buffer.id] = self.lodged.get(buffer.id, 0) + size

    def life_of(self, buffer: Buffer) -> float:
        if buffer.start is None or buffer.end is None:
            return 0.0
        return (buffer.end - buffer.start + 1) / (self.memory.steps + 1)


def iter_owners(memory: MemoryView, color: int, step: int | None) -> Iterator[OwnedBytes]:
    """The owners of the bytes of a space; temporaries at the peak step."""
    temporary = {allocation.index for allocation in memory.temporary_allocations(color)}
    for allocation in reserved(memory.joined.allocations, color):
        buffers = memory.buffers_in(allocation.index)
        if allocation.index in temporary and step is not None:
            yield from memory.share_out(allocation, step)[0]
        elif buffers:
            yield OwnedBytes(max(buffers, key=_claim), allocation.size)


def iter_lodgers(memory: MemoryView, color: int, step: int | None) -> Iterator[OwnedBytes]:
    """Temporaries inside the memory of an argument or a result at the peak step."""
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
    """Sort key: the last value of an allocation is the one the caller gets."""
    return (buffer.end or 0, buffer.id)


def _claim(buffer: Buffer) -> tuple[bool, int, int, int]:
    """Sort key: a whole allocation belongs to its parameter, else to its last value."""
    return (buffer.opcode == "parameter", buffer.end or 0, buffer.size, -buffer.id)


def change_of(pair: Pair, before: SharedOut, after: SharedOut) -> Change:
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
