"""The parts of a result that are new values, as opposed to forwarded ones.

Mirrors the switch of `HloDataflowAnalysis::InitializeInstructionValueSets`
(`hlo/analysis/hlo_dataflow_analysis.cc`), in the order in which XLA numbers the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import DEFINE_NOTHING, Opcode, opcodes_forwarding, rules_by_opcode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.hlo.traits import Forwarding

TOP_ONLY = opcodes_forwarding("below top", "elements")
"""Opcodes that define a tuple and forward its elements."""


def defined_parts(instruction: HloInstruction) -> Sequence[int]:
    """The numbers of the parts that an instruction defines; all those of a parameter."""
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


def _tuples_and(first: Callable[[int], bool]) -> Callable[[HloInstruction], list[int]]:
    """All tuples, and all parts of the elements for which `first` holds."""

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
    number_of = instruction.shape.parts.number_of
    indices = [(), *((i,) for i in range(1, max(2, len(instruction.shape.elements))))]
    count = len(instruction.operands)
    if is_in_place_permute(instruction):
        count = len(instruction.operands[1].shape.elements)
    elif count == 1:
        count = 0
    return [number_of[index] for index in (*indices, *((1, i) for i in range(count)))]


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
    "second element": lambda instruction: (0,) if instruction.shape.is_tuple else (),
    "sent operand": _at((), (1,), (2,)),
}
_SPECIAL = rules_by_opcode(lambda traits: traits.forwards, _PARTS_OF_FORWARDING)

SPECIAL_OPCODES = frozenset(_SPECIAL)
"""Opcodes with their own rule for the parts they define."""
