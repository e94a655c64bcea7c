"""Bodies for fusions: opaque operations that overwrite the same operands as in the dump."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.disjoint_sets import DisjointSets
from hlomem.hlo.opcodes import ELEMENTWISE
from hlomem.view.control_flow import find_structure
from hlomem.view.families import find_alias_classes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.dump.records import ShapeIndex, UsedValue
    from hlomem.hlo.shape import Shape
    from hlomem.view.joined import JoinedDump, PlacedValue, Read

_IN_PLACE = re.compile(r"dynamic[-_]update[-_]slice|scatter")
_OPAQUE = 'custom_call_target="opaque"'


class Sharing(NamedTuple):
    output_index: ShapeIndex
    operand: int
    operand_index: ShapeIndex


def find_sharing(fusion: str, joined: JoinedDump) -> list[Sharing]:
    own = [joined.used_by_id[value_id] for ids in joined.held[fusion].values() for value_id in ids]
    return [
        Sharing(value.index or (), read.operand, read.shape_index or ())
        for value in own
        if value.name == fusion
        for read in joined.reads.get(fusion, ())
        if _overwrites(value, read, joined)
    ]


def _overwrites(value: UsedValue, read: Read, joined: JoinedDump) -> bool:
    if value.name not in joined.time_of:  # values inside operations share only where they must
        return joined.share_bytes(value, read.value)
    life = joined.find_life(read.value.name, read.value.index)
    time = joined.time_of[value.name]
    return life is not None and life.end == time and joined.share_bytes(value, read.value)


def find_in_place(joined: JoinedDump) -> set[str]:
    """The fusions whose result must overwrite an operand, as an update does.

    Some are recognized by name. In the heap of temporaries XLA lets a result overwrite an operand
    only if neither must share its offset with other values (`HeapSimulator::Run`), so along a chain
    of values at one offset all must share, or none. They must if one belongs to a loop's state, or
    if a value that could have overwritten one did not.
    """
    chains = DisjointSets["PlacedValue"]()
    fusions: dict[str, list[PlacedValue]] = {}
    bound: set[PlacedValue] = set()
    for name, line in joined.printed.items():
        pairs = _pairs_in_heap(name, joined) if line.opcode == "fusion" else []
        for value, operand in pairs:
            chains.unite(value, operand)
        fusions[name] = [placed for pair in pairs for placed in pair]
        if _IN_PLACE.search(line.name + line.tail):
            bound.update(fusions[name])
    families = find_alias_classes(joined, find_structure(joined))
    families_of = families.members(joined.placed).values()
    several = {placed for family in families_of for placed in family}
    bound |= several | set(_not_overwritten(joined, several))
    heads = {chains.find(placed) for placed in bound}
    return {
        name
        for name, held in fusions.items()
        if any(chains.find(placed) in heads for placed in held)
        or _IN_PLACE.search(joined.printed[name].name + joined.printed[name].tail)
        or name not in joined.time_of
    }


def _not_overwritten(joined: JoinedDump, several: set[PlacedValue]) -> Iterator[PlacedValue]:
    for name, line in joined.printed.items():
        reads = joined.reads.get(name, ())
        if line.opcode not in ELEMENTWISE or line.opcode == "copy" or len(reads) != 1:
            continue
        operand = joined.placed_by_id[reads[0].value.id]
        results = joined.values_at.get((name, ()), ())
        if (
            len(results) == 1
            and operand.value.name in line.operands
            and results[0].value.shape == operand.value.shape
            and results[0].allocation is operand.allocation
            and operand.allocation.is_preallocated_temp
            and operand.life is not None
            and operand.life.end == joined.time_of.get(name)
            and not results[0].shares_bytes_with(operand)
            and results[0] not in several
        ):
            yield operand


def _pairs_in_heap(fusion: str, joined: JoinedDump) -> list[tuple[PlacedValue, PlacedValue]]:
    """The results of a fusion in the heap of temporaries, each with the operand it overwrites."""
    if fusion not in joined.time_of:
        return []
    pairs = [
        (joined.placed_by_id[value], joined.placed_by_id[read.value.id])
        for ids in joined.held[fusion].values()
        for value in ids
        if joined.used_by_id[value].name == fusion
        for read in joined.reads.get(fusion, ())
        if _overwrites(joined.used_by_id[value], read, joined)
    ]
    return [pair for pair in pairs if pair[0].allocation.is_preallocated_temp]


def write_body(
    name: str,
    shape: Shape,
    operand_shapes: Sequence[Shape],
    sharing: Sequence[Sharing],
    called: Sequence[str],
    *,
    is_in_place: bool,
) -> str:
    body = _Body(name, operand_shapes, is_in_place=is_in_place)
    if called:
        names = ", ".join(f"%{callee}" for callee in called)
        body.add("pred[]", f"custom-call(), {_OPAQUE}, called_computations={{{names}}}")
    body.add_result(shape, (), sharing)
    return body.text()


class _Body:
    def __init__(self, name: str, operand_shapes: Sequence[Shape], *, is_in_place: bool) -> None:
        self._name = name
        self._is_in_place = is_in_place
        self._lines: list[str] = []
        self._parameters = [
            self.add(shape.text, f"parameter({number})")
            for number, shape in enumerate(operand_shapes)
        ]
        self._shapes = operand_shapes

    def add(self, shape: str, operation: str) -> str:
        name = f"%{self._name}.{len(self._lines)}"
        self._lines.append(f"{name} = {shape} {operation}")
        return name

    def add_result(self, shape: Shape, index: ShapeIndex, sharing: Sequence[Sharing]) -> str:
        if shape.is_tuple:
            elements = [
                self.add_result(element, (*index, number), sharing)
                for number, element in enumerate(shape.elements)
            ]
            return self.add(shape.text, f"tuple({', '.join(elements)})")
        shared = {(part.operand, part.operand_index) for part in sharing}
        opaque = [p for k, p in enumerate(self._parameters) if (k, ()) not in shared]
        result = self.add(shape.text, f"custom-call({', '.join(opaque)}), {_OPAQUE}")
        for shared_part in sharing:
            if shared_part.output_index == index:
                operand = self._take(shared_part)
                operation = f"maximum({operand}, {result})"
                if self._is_in_place:
                    start = self.add("s32[]", "constant(0)") if shape.dimensions else ""
                    starts = f", {start}" * len(shape.dimensions)
                    operation = f"dynamic-update-slice({operand}, {result}{starts})"
                result = self.add(shape.text, operation)
        return result

    def _take(self, sharing: Sharing) -> str:
        operand, shape = self._parameters[sharing.operand], self._shapes[sharing.operand]
        for number in sharing.operand_index:
            shape = shape.elements[number]
            operand = self.add(shape.text, f"get-tuple-element({operand}), index={number}")
        return operand

    def text(self) -> str:
        *others, root = self._lines
        return "\n".join(
            [f"%{self._name} {{", *(f"  {line}" for line in others), f"  ROOT {root}", "}"]
        )
