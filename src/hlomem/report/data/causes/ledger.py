"""The bytes of a difference, as a ledger of which every entry is booked to one cause.

In: the changes of all buffers, and both sides. Out: `Entry`s, signed: what a buffer holds before is
taken away, what it holds after is added. A temporary that lodges in the memory of a result when
most is needed holds bytes, too, which is not to be seen in what is reserved; `lodged` balances
that. Entries, `lodged` and `holes` add up to the difference, so that causes that share them out do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hlomem.report.data.causes.changes import Change, SharedOut
    from hlomem.report.data.memory import Buffer

BEFORE, AFTER = 0, 1


class Entry(NamedTuple):
    """Bytes of one buffer on one side."""

    change: Change
    side: int
    """BEFORE or AFTER."""
    size: int
    """Negative before."""
    is_lodged: bool = False
    """Whether the bytes are of memory that is reserved for something else anyway."""

    @property
    def buffer(self) -> Buffer:
        """The buffer that holds them."""
        buffer = self.change.after if self.side else self.change.before
        assert buffer is not None
        return buffer

    @property
    def partner(self) -> Buffer | None:
        """The same buffer on the other side."""
        return self.change.before if self.side else self.change.after


class Booking(NamedTuple):
    """The entries booked to one cause."""

    size: int
    buffers: int
    """How many have other bytes through it."""


def booked(entries: Iterable[Entry]) -> Booking:
    """The sum of some entries; a buffer with as many bytes before and after does not count."""
    nets: dict[int, int] = {}
    for entry in entries:
        key = id(entry.change)
        nets[key] = nets.get(key, 0) + entry.size
    return Booking(sum(nets.values()), sum(net != 0 for net in nets.values()))


class Ledger:
    """The entries that are not booked yet."""

    def __init__(self, before: SharedOut, after: SharedOut, changes: Iterable[Change]) -> None:
        self.open: list[Entry] = list(_entries(before, after, changes))
        self.holes = after.unused - before.unused
        """Bytes more that nobody fills."""
        self.lodged = sum(before.lodged.values()) - sum(after.lodged.values())
        """Bytes more that temporaries need because fewer of them lodge elsewhere."""

    def take_holes(self) -> int:
        """Books what nobody fills, and returns it."""
        size, self.holes = self.holes, 0
        return size

    def take_lodged(self) -> int:
        """Books what lodgers need, and returns it."""
        size, self.lodged = self.lodged, 0
        return size

    def take(self, wanted: Callable[[Entry], bool]) -> list[Entry]:
        """Books the entries that are wanted, and returns them."""
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
