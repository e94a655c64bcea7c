"""The parts of a result that are new values, as opposed to values handed on.

Mirrors the switch of `HloDataflowAnalysis::InitializeInstructionValueSets`
(`hlo/analysis/hlo_dataflow_analysis.cc`). The answer is a list of part numbers in the order in
which XLA defines them, because that order gives the values their ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import DEFINE_NOTHING, opcodes_forwarding, rules_by_opcode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape
    from hlomem.hlo.traits import Forwarding

TOP_ONLY = opcodes_forwarding("below top", "elements")
"""Opcodes that define the tuple and hand its elements on."""


def defined_parts(instruction: HloInstruction) -> Sequence[int]:
    """The parts an instruction defines; a parameter defines all (its caller may know better)."""
    opcode = instruction.opcode
    if opcode in DEFINE_NOTHING:
        return ()
    if opcode in TOP_ONLY:
        return (0,)
    special = _SPECIAL.get(opcode)
    if special is not None:
        return special(instruction)
    return range(instruction.shape.parts.count)


def count_defined(shape: Shape, opcode: Opcode) -> int:
    """The number of values an instruction of a fused body defines."""
    if opcode in DEFINE_NOTHING:
        return 0
    if opcode in TOP_ONLY:
        return 1
    return shape.parts.count if shape.is_tuple else 1


def _at(*indices: tuple[int, ...]) -> Callable[[HloInstruction], list[int]]:
    def parts(instruction: HloInstruction) -> list[int]:
        number_of = instruction.shape.parts.number_of
        return [number_of[index] for index in indices]

    return parts


def _top_of_tuple(instruction: HloInstruction) -> tuple[int, ...]:
    return (0,) if instruction.shape.is_tuple else ()


def _tuples_and(first: Callable[[int], bool]) -> Callable[[HloInstruction], list[int]]:
    """Every tuple, and every part below the elements for which `first` holds."""

    def parts(instruction: HloInstruction) -> list[int]:
        shape_parts = instruction.shape.parts
        return [
            number
            for number, index in enumerate(shape_parts.indices)
            if shape_parts.shapes[number].is_tuple or (index and first(index[0]))
        ]

    return parts


def _collective_permute_start(instruction: HloInstruction) -> list[int]:
    """The tuple, the destination, contexts, then the destinations of several operands."""
    shape_parts = instruction.shape.parts
    number_of = shape_parts.number_of
    elements = instruction.shape.elements
    indices: list[tuple[int, ...]] = [(), (1,), *((i,) for i in range(2, len(elements)))]
    if is_in_place_permute(instruction):
        destination = instruction.operands[1].shape
        indices += ((1, i) for i in range(len(destination.elements)))
    elif len(instruction.operands) > 1:
        indices += ((1, i) for i in range(len(instruction.operands)))
    return [number_of[index] for index in indices]


def is_in_place_permute(instruction: HloInstruction) -> bool:
    """Whether a collective-permute writes slices into its second operand."""
    return len(instruction.operands) == 4 and "slice_sizes" in instruction.attributes


_PARTS_OF_FORWARDING: Mapping[Forwarding, Callable[[HloInstruction], Sequence[int]]] = {
    "async done": _tuples_and(lambda _: False),
    "async operands": _tuples_and(lambda element: element > 1),
    "copy start": _at((), (0,), (2,)),
    "gather start": _tuples_and(lambda element: element == 1),
    "permute start": _collective_permute_start,
    "received element": _at((), (1,)),
    "second element": _top_of_tuple,
    "sent operand": _at((), (1,), (2,)),
}
_SPECIAL = rules_by_opcode(lambda traits: traits.forwards, _PARTS_OF_FORWARDING)

SPECIAL_OPCODES = frozenset(_SPECIAL)
"""Opcodes that define parts of their result by rules of their own."""
