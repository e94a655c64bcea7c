"""A checker of programs whose values wait in the host's memory.

New copies come in fours, from a value as it is to the same value; without them the program must
pass `opt/checks/edit.py`. Memory of a value that is copied may hold no other value.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from hlomem.check.flow import trace
from hlomem.hlo.rewrite import Rewriter
from hlomem.opt.checks.edit import find_edit_problems
from hlomem.opt.checks.order import Allowed, find_families

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloInstruction, HloModule

_START, _DONE = "copy-start", "copy-done"
_CHAIN = (_DONE, _START, _DONE, _START)
"""From the last to the first."""


class _Trip(NamedTuple):
    """The copies of a value, the first one first."""

    value: HloInstruction
    copies: tuple[HloInstruction, ...]


def find_move_problems(given: HloModule, edited: HloModule, allowed: Allowed) -> list[str]:
    """Problems of a module with values in the host's memory."""
    known = {instruction.name for instruction in given.entry.instructions}
    new = [
        one
        for one in edited.entry.instructions
        if one.name not in known and one.opcode in (_START, _DONE)
    ]
    trips = [_trip(one, known) for one in new if one.opcode == _DONE and not _space_of(one)]
    problems = list(_check_new(new, trips))
    for trip in trips:
        problems += _check_trip(trip, allowed.host_color)
    if problems:
        return problems
    rewriter = Rewriter(edited)
    for trip in trips:
        rewriter.replace_uses(trip.copies[-1], trip.value)
        for copy in reversed(trip.copies):
            rewriter.remove(copy)
    problems = find_edit_problems(given, rewriter.finish(), allowed)
    return problems or list(_check_memory(edited, trips))


def _trip(last: HloInstruction, known: set[str]) -> _Trip:
    """The way of a value to what brings it back, as far as it is one of new copies."""
    copies = [last]
    for opcode in _CHAIN[1:]:
        before = copies[-1].operands[0]
        if before.opcode != opcode or before.name in known:
            break
        copies.append(before)
    return _Trip(copies[-1].operands[0], tuple(reversed(copies)))


def _check_new(new: list[HloInstruction], trips: list[_Trip]) -> Iterator[str]:
    """Every new copy belongs to one trip."""
    count = dict.fromkeys(new, 0)
    for trip in trips:
        for copy in trip.copies:
            count[copy] = count.get(copy, 0) + 1
    for copy, times in count.items():
        if times != 1:
            yield f"{copy.name} is new, and not part of one copy to the host and back"


def _check_trip(trip: _Trip, space: int) -> Iterator[str]:
    value, copies = trip
    name = value.name
    if tuple(copy.opcode for copy in reversed(copies)) != _CHAIN:
        yield f"{name} is not copied to the host and back by {copies[-1].name}"
        return
    if not value.shape.is_array or _space_of(value):
        yield f"{name} is not an array in the device's own memory"
        return
    start, out, fetch, back = copies
    away = value.shape.text_without_layout
    if back.shape != value.shape or out.shape.text_without_layout != away:
        yield f"{name} comes back from the host in another shape"
    if _space_of(out) != space:
        yield f"{name} is copied to memory space {_space_of(out)}, not to the host's"
    for copy, result, source in ((start, out, value), (fetch, back, out)):
        if copy.shape.elements[:2] != (result.shape, source.shape):
            yield f"{copy.name} does not copy what it says"
    for copy in copies:
        if copy.control_predecessors:
            yield f"{copy.name} waits for what it does not read"
    for copy, reader in pairwise(copies):
        if list(copy.users) != [reader]:
            yield f"{copy.name} is read by others than {reader.name}"


def _check_memory(edited: HloModule, trips: list[_Trip]) -> Iterator[str]:
    """A value that is being copied is not written over; what comes back is not shared."""
    moved = {one.name for trip in trips for one in (trip.value, *trip.copies)}
    for family in find_families(edited, trace(edited)):
        for name in sorted({name for name, _ in family} & moved):
            yield f"{name} must share the memory of another value"


def _space_of(instruction: HloInstruction) -> int:
    return instruction.shape.memory_space
