"""Small plans made by hand: one line a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

import hlomem
from hlomem import hlo
from hlomem.check.verify import verify
from hlomem.dump.dump import Dump
from hlomem.dump.records import (
    Allocation,
    AssignedValue,
    Assignment,
    LiveRanges,
    Position,
    Use,
    UsedValue,
    Values,
)
from hlomem.machines.cpu import CPU
from tests import plain
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
            plain.AssignedValue(
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
        header = (headers or {}).get(number) or plain.Allocation(
            index=number, size=max((each.offset + each.size for each in held), default=0)
        )
        allocations.append(replace(header, values=held))
    names = list(dict.fromkeys(value.name for value in values)) if sequence is None else sequence
    ranges = [
        plain.LiveRange(instruction=v.name, index=v.index or (), start=v.life[0], end=v.life[1])
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
    return plain.UsedValue(
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


def rules(dump: Dump, module: str | None = None) -> list[str]:
    """The rules a CPU plan breaks, each once."""
    parsed = hlo.parse(module) if module else None
    verdict = verify(dump, module=parsed, machine=CPU)
    return sorted({finding.rule for finding in verdict.findings})


LOOP = [
    V("i", (0, 1), text="f32[16]{0} negate()", uses=(("w", 0, ()),)),
    V("c", (1, 3), text="f32[16]{0} parameter(0)", is_phi=True),
    V("t", (2, 3), 0, text="pred[] compare(%c)", shape="pred[]", size=1, allocation=1),
    V("b", (3, 4), text="f32[16]{0} parameter(0)", is_phi=True),
    V("r", (4, 5), text="f32[16]{0} negate(%b)"),
    V("w", (5, 6), text="f32[16]{0} while(%i), condition=%k, body=%y", is_phi=True),
]


O_USES = (("k", 1, ()), ("x", 0, ()))


U_USES = (("k", 2, ()), ("y", 0, ()))


def branches(*more_uses: tuple[str, int, tuple[int, ...]], **places: int) -> Dump:
    """A conditional of two branches; `x` of the first seems to live into the second."""
    operand = "f32[16]{0} negate()"
    result = "f32[16]{0} conditional(%s, %o, %u), branch_computations={%f, %g}"
    values = [
        V("s", (0, 10), text="s32[] constant(0)", shape="s32[]", size=4, allocation=3),
        V(
            "o",
            (1, 9),
            text=operand,
            allocation=places.get("o", 4),
            positions=(("p", ()),),
            uses=(*O_USES, *more_uses),
        ),
        V("u", (2, 9), text=operand, allocation=5, positions=(("q", ()),), uses=U_USES),
        V("x", (4, 8), text="f32[16]{0} abs(%p)", allocation=0),
        V("r", (5, 8), text="f32[16]{0} abs(%x)", allocation=1),
        V("y", (7, 8), text="f32[16]{0} abs(%q)", allocation=places.get("y", 0)),
        V("z", (8, 9), text="f32[16]{0} abs(%y)", allocation=1),
        V("k", (9, 10), text=result, is_phi=True, allocation=places.get("k", 1)),
    ]
    header = {3: plain.Allocation(index=3, size=4, is_constant=True)}
    names = ["s", "o", "u", "p", "x", "r", "q", "y", "z", "k"]
    return small_dump(values, header, sequence=names)


def blamed(dump: Dump, module: str) -> list[tuple[str, str]]:
    """The values that break a rule, each with the rule."""
    verdict = verify(dump, module=hlo.parse(module), machine=CPU)
    return [(value.name, each.rule) for each in verdict.findings for value in each.values]


def with_sequence(dump: Dump, *names: str) -> Dump:
    """`dump` with another order."""
    assert dump.live_ranges is not None
    live = replace(dump.live_ranges, sequence=names, end=len(names))
    return rebuilt(dump, live_ranges=live)
