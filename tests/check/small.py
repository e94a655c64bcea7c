"""Small plans made by hand: one line a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

import hlomem
from hlomem.dump.dump import Dump
from hlomem.dump.records import (
    Allocation,
    AssignedValue,
    Assignment,
    LiveRange,
    LiveRanges,
    Position,
    Use,
    UsedValue,
    Values,
)
from tests.check.faults import rebuilt
from tests.conftest import GOLDENS

SOME_DUMP = GOLDENS / "xla" / "jaxlib-0.12.0.1" / "cpu" / "nested_while"


@dataclass(frozen=True)
class V:
    """A value: `name{index}`, its life, its place, and the instruction that makes it."""

    name: str
    life: tuple[int, int]
    offset: int = 0
    text: str = ""
    """Shape, opcode and operands; a name in the operands is a use. By default it has the shape."""
    shape: str = "f32[16]{0}"
    size: int = 64
    allocation: int = 0
    index: tuple[int, ...] | None = None
    color: int = 0
    is_phi: bool = False
    positions: tuple[tuple[str, tuple[int, ...]], ...] = ()
    uses: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
    """Uses beyond those the texts show."""

    @property
    def instruction(self) -> str:
        """The whole text."""
        return f"%{self.name} = {self.text or self.shape + ' add()'}"


def small_dump(
    values: Sequence[V],
    headers: dict[int, Allocation] | None = None,
    sequence: Sequence[str] | None = None,
) -> Dump:
    """A dump of these values; an allocation without a header is as large as its values."""
    ids = {id(value): number for number, value in enumerate(values)}
    assigned: dict[int, list[AssignedValue]] = {}
    for value in values:
        assigned.setdefault(value.allocation, []).append(
            AssignedValue(
                id=ids[id(value)],
                name=value.name,
                index=value.index,
                is_phi=value.is_phi,
                color=value.color,
                size=value.size,
                offset=value.offset,
                shape=value.shape,
            )
        )
    allocations = []
    for number in range(max(assigned, default=-1) + 1):
        held = tuple(assigned.get(number, ()))
        header = (headers or {}).get(number) or Allocation(
            index=number, size=max((each.offset + each.size for each in held), default=0)
        )
        allocations.append(replace(header, values=held))
    names = list(dict.fromkeys(value.name for value in values)) if sequence is None else sequence
    ranges = [
        LiveRange(instruction=v.name, index=v.index or (), start=v.life[0], end=v.life[1])
        for v in values
    ]
    return rebuilt(
        hlomem.load(SOME_DUMP),
        assignment=Assignment(allocations=tuple(allocations)),
        values=Values(
            total_bytes=sum(each.size for each in allocations),
            values=tuple(_used(value, ids[id(value)], values) for value in values),
        ),
        live_ranges=LiveRanges(end=len(names), sequence=tuple(names), ranges=tuple(ranges)),
        report=None,
    )


def planned(module: str) -> Dump:
    """The plan of a module, right as it is."""
    return hlomem.plan(module, backend="cpu").dump


def moved(dump: Dump, name: str, **changes: int) -> Dump:
    """`dump` with one value elsewhere; `allocation=` moves it to that one."""
    assert dump.assignment is not None
    allocations = list(dump.assignment.allocations)
    home = next(a for a in allocations if name in [v.name for v in a.values])
    value = next(v for v in home.values if v.name == name)
    number = changes.pop("allocation", home.index)
    new: AssignedValue = replace(value, **changes)
    for place, each in enumerate(allocations):
        kept = tuple(v for v in each.values if v is not value)
        allocations[place] = replace(each, values=(*kept, new) if each.index == number else kept)
    return rebuilt(dump, assignment=replace(dump.assignment, allocations=tuple(allocations)))


def shortened(dump: Dump, name: str, end: int) -> Dump:
    """`dump` with a live range that ends at `end`."""
    live = dump.live_ranges
    assert live is not None
    ranges = tuple(replace(r, end=end) if r.instruction == name else r for r in live.ranges)
    return rebuilt(dump, live_ranges=replace(live, ranges=ranges, peak=None))


def _used(value: V, number: int, values: Sequence[V]) -> UsedValue:
    uses = [Use(*each) for each in value.uses]
    for user in values:
        operands = user.text.partition("(")[2].partition(")")[0].split(", ")
        if value.index is None and user.index in (None, (), (0,)) and not value.uses:
            uses += [
                Use(user.name, place)
                for place, operand in enumerate(operands)
                if operand == f"%{value.name}"
            ]
    return UsedValue(
        id=number,
        name=value.name,
        index=value.index,
        is_phi=value.is_phi,
        color=value.color,
        positions=(
            Position(value.name, value.index),
            *(Position(*each) for each in value.positions),
        ),
        uses=tuple(uses),
        instruction=value.instruction,
    )
