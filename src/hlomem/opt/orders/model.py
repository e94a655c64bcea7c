"""The bytes that an order keeps alive, counted without packing them.

A buffer counts while one of its values is alive; what is written over an operand takes its bytes;
what a node calls counts while it runs. Memory borrowed from results is not counted.
"""

from __future__ import annotations

from copy import copy
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.opt.orders.flow import Flow


def peak_of(flow: Flow, order: Sequence[int]) -> int:
    """The most bytes an order keeps alive at once."""
    return max(levels_of(flow, order), default=0)


def levels_of(flow: Flow, order: Sequence[int]) -> list[int]:
    """The bytes alive while each node of an order runs."""
    sizes, values, made_by, read_by = flow.sizes, flow.values, flow.made_by, flow.read_by
    shares, inner = flow.shares, flow.inner
    buffer_of = [value.buffer for value in values]
    unread = [len(value.readers) + value.lives_on for value in values]
    alive = [0] * len(sizes)
    level = 0
    for value in flow.at_start:
        buffer = buffer_of[value]
        if not alive[buffer]:
            level += sizes[buffer]
        alive[buffer] += 1
    levels: list[int] = []
    for node in order:
        saved = shared_bytes(flow, node, unread) if node in shares else 0
        made = made_by[node]
        for value in made:
            buffer = buffer_of[value]
            if not alive[buffer]:
                level += sizes[buffer]
            alive[buffer] += 1
        here = level - saved
        if node in inner:
            counted = flow.counted_inside[node]
            here += inner[node] - sum(sizes[buffer] for buffer in counted if alive[buffer])
        levels.append(here)
        for value in read_by[node]:
            unread[value] -= 1
            if not unread[value]:
                buffer = buffer_of[value]
                alive[buffer] -= 1
                if not alive[buffer]:
                    level -= sizes[buffer]
        for value in made:
            if not unread[value]:
                buffer = buffer_of[value]
                alive[buffer] -= 1
                if not alive[buffer]:
                    level -= sizes[buffer]
    return levels


def shared_bytes(flow: Flow, node: int, unread: Sequence[int]) -> int:
    """Bytes of what a node reads last that its results are written over."""
    taken: set[int] = set()
    saved = 0
    for value, candidates in flow.shares[node]:
        for candidate in candidates:
            if unread[candidate] == 1 and candidate not in taken:
                taken.add(candidate)
                own, other = flow.values[value].buffer, flow.values[candidate].buffer
                saved += min(flow.sizes[own], flow.sizes[other])
                break
    return saved


class Timeline:
    def __init__(self, flow: Flow, order: Sequence[int]) -> None:
        self.flow = flow
        self.order = list(order)
        self.levels = levels_of(flow, order)
        self.place_of = [0] * len(self.order)
        for place, node in enumerate(self.order):
            self.place_of[node] = place
        self._members = _Members(flow)
        self._rests: dict[int, int] = {}
        """By position: bytes alive there that the nodes of no stretch touch."""

    def copy(self) -> Timeline:
        """The same, to be changed on its own."""
        other = copy(self)
        other.order, other.levels = self.order.copy(), self.levels.copy()
        other.place_of, other._rests = self.place_of.copy(), {}
        return other

    @property
    def peak(self) -> int:
        """The most bytes alive at once."""
        return max(self.levels, default=0)

    def levels_with(self, first: int, stretch: Sequence[int], most: float = inf) -> list[int]:
        """The bytes alive while each node of a stretch runs, if it stood from `first` on.

        The last is the first above `most`, if any is.
        """
        rest = self._rest(first)
        run = _Stretch(self, self._members, first)
        return [rest + level for level in run.levels(stretch, most - rest)]

    def _rest(self, first: int) -> int:
        known = self._rests.get(first)
        if known is None:
            now = _Stretch(self, self._members, first).levels(self.order[first : first + 1])
            known = self._rests[first] = self.levels[first] - now[0]
        return known

    def put(self, first: int, stretch: Sequence[int], levels: Sequence[int]) -> None:
        """Take over a stretch of the same nodes in another order, with its levels."""
        self._rests.clear()
        self.order[first : first + len(stretch)] = stretch
        self.levels[first : first + len(stretch)] = levels
        for place, node in enumerate(stretch, first):
            self.place_of[node] = place


class _Members:
    def __init__(self, flow: Flow) -> None:
        self.of: list[list[int]] = [[] for _ in flow.sizes]
        for number, value in enumerate(flow.values):
            self.of[value.buffer].append(number)
        counted = {buffer for inside in flow.counted_inside.values() for buffer in inside}
        self.is_alone = [
            len(members) == 1 and buffer not in counted for buffer, members in enumerate(self.of)
        ]
        """Whether a buffer holds one value, so that it is alive as long as that is."""


class _Stretch:
    """A run through some nodes, from what is alive before them."""

    def __init__(self, timeline: Timeline, members: _Members, first: int) -> None:
        self._flow = timeline.flow
        self._place_of = timeline.place_of
        self._members = members
        self._first = first
        self._unread: dict[int, int] = {}
        self._alive: dict[int, int] = {}

    def levels(self, stretch: Sequence[int], most: float = inf) -> list[int]:
        """The bytes alive while each node runs, less what is alive throughout and untouched.

        Up to the first that is above `most`.
        """
        flow, unread, is_alone = self._flow, self._unread, self._members.is_alone
        sizes, values, shares, inner = flow.sizes, flow.values, flow.shares, flow.inner
        made_by, read_by = flow.made_by, flow.read_by
        level = 0
        levels: list[int] = []
        for node in stretch:
            saved = self._shared_bytes(node) if node in shares else 0
            made = made_by[node]
            for value in made:
                buffer, _, readers, lives_on = values[value]
                unread[value] = len(readers) + lives_on
                level += sizes[buffer] if is_alone[buffer] else self._occupy(buffer)
            here = level - saved + (self._inside(node) if node in inner else 0)
            levels.append(here)
            if here > most:
                break
            for value in read_by[node]:
                left = (unread[value] if value in unread else self._unread_of(value)) - 1
                unread[value] = left
                if not left:
                    buffer = values[value].buffer
                    level -= sizes[buffer] if is_alone[buffer] else self._release(buffer)
            for value in made:
                if not unread[value]:
                    buffer = values[value].buffer
                    level -= sizes[buffer] if is_alone[buffer] else self._release(buffer)
        return levels

    def _unread_of(self, value: int) -> int:
        """How many have still to read a value that was there before the stretch."""
        first, place_of = self._first, self._place_of
        _, _, readers, lives_on = self._flow.values[value]
        known = int(lives_on)
        for reader in readers:
            if place_of[reader] >= first:
                known += 1
        return known

    def _inside(self, node: int) -> int:
        """The bytes that what a node calls needs in addition to what is alive."""
        flow = self._flow
        counted = flow.counted_inside[node]
        return flow.inner[node] - sum(
            flow.sizes[buffer] for buffer in counted if self._alive_in(buffer)
        )

    def _occupy(self, buffer: int) -> int:
        """A value of a buffer is made: the bytes that takes."""
        count = self._alive_in(buffer)
        self._alive[buffer] = count + 1
        return 0 if count else self._flow.sizes[buffer]

    def _release(self, buffer: int) -> int:
        """A value of a buffer is needed no more: the bytes that frees."""
        count = self._alive_in(buffer) - 1
        self._alive[buffer] = count
        return 0 if count else self._flow.sizes[buffer]

    def _alive_in(self, buffer: int) -> int:
        known = self._alive.get(buffer)
        if known is None:
            known = sum(map(self._is_alive, self._members.of[buffer]))
            self._alive[buffer] = known
        return known

    def _is_alive(self, value: int) -> bool:
        first, place_of = self._first, self._place_of
        _, made_by, readers, lives_on = self._flow.values[value]
        if made_by >= 0 and place_of[made_by] >= first:
            return False
        is_kept = lives_on or (made_by < 0 and not readers)
        return is_kept or any(place_of[reader] >= first for reader in readers)

    def _shared_bytes(self, node: int) -> int:
        """Bytes of what a node reads last that its results are written over."""
        flow, unread = self._flow, self._unread
        taken: set[int] = set()
        saved = 0
        for value, candidates in flow.shares[node]:
            for candidate in candidates:
                left = unread[candidate] if candidate in unread else self._unread_of(candidate)
                if candidate not in taken and left == 1:
                    taken.add(candidate)
                    own, other = flow.values[value].buffer, flow.values[candidate].buffer
                    saved += min(flow.sizes[own], flow.sizes[other])
                    break
        return saved
