"""Small plans made by hand: one line a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    text: str = "f32[16]{0} add()"
    """Shape, opcode and operands; a name in the operands is a use."""
    shape: str = "f32[16]{0}"
    size: int = 64
    allocation: int = 0
    index: tuple[int, ...] | None = None
    color: int = 0
    is_phi: bool = False
    positions: tuple[tuple[str, tuple[int, ...]], ...] = ()
    uses: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
    """Uses beyond those the texts show."""


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
        allocations.append(_with_values(header, held))
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


def _with_values(header: Allocation, values: tuple[AssignedValue, ...]) -> Allocation:
    from msgspec.structs import replace  # noqa: PLC0415 - `dataclasses` has one too

    return replace(header, values=values)


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
        instruction=f"%{value.name} = {value.text}",
    )
