"""Indices that count: columns of a gather's or scatter's indices that are the row's own number."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction

_SAME_PLACES = frozenset({"bitcast", "copy", "reshape"})


class Scope(NamedTuple):
    """The fusion around an instruction, which gives its parameters their values."""

    fusion: HloInstruction | None = None
    around: Scope | None = None

    def outside(self, instruction: HloInstruction) -> tuple[HloInstruction, Scope]:
        """The value that a parameter of a fusion is, through all fusions, and where that stands."""
        scope = self
        while instruction.opcode == "parameter" and scope.fusion is not None:
            instruction = scope.fusion.operands[instruction.parameter_number]
            scope = scope.around or _NOWHERE
        return instruction, scope

    def is_zero(self, instruction: HloInstruction) -> bool:
        """Whether a value is nothing but zeros, wherever it is made."""
        scope = self
        while True:
            instruction, scope = scope.outside(instruction)
            if instruction.opcode == "fusion" and instruction.shape.is_array:
                scope = Scope(instruction, scope)
                instruction = instruction.called_computations[0].root
            elif instruction.opcode in ("broadcast", "bitcast", "copy"):
                [instruction] = instruction.operands
            else:
                return instruction.opcode == "constant" and instruction.payload.strip() == "0"


_NOWHERE = Scope()


def counts_along(
    indices: HloInstruction, row: int, vector: int, column: int, scope: Scope
) -> int | None:
    """How far a column counts, if in the n-th part of the rows it has the n-th of the numbers.

    An iota along the rows does, through all that leaves the order of rows and columns.
    """
    indices, scope = scope.outside(indices)
    opcode = indices.opcode
    if opcode == "iota":
        is_along = int(indices.attributes["iota_dimension"]) == row
        return indices.shape.dimensions[row] if is_along else None
    if opcode == "fusion" and indices.shape.is_array:
        inside = Scope(indices, scope)
        return counts_along(indices.called_computations[0].root, row, vector, column, inside)
    if opcode == "concatenate" and indices.integers("dimensions") == (vector,):
        for operand in indices.operands:
            width = operand.shape.dimensions[vector]
            if column < width:
                return counts_along(operand, row, vector, column, scope)
            column -= width
    if opcode in _SAME_PLACES:
        [source] = indices.operands
        places = _places(source, indices, row, vector)
        return None if places is None else counts_along(source, *places, column, scope)
    return None


def _places(
    source: HloInstruction, result: HloInstruction, row: int, vector: int
) -> tuple[int, int] | None:
    """The dimensions of rows and columns before a change of shape, if they are kept apart."""
    if source.shape.dimensions == result.shape.dimensions:
        return row, vector
    for one in (source, result):  # rows first, columns last, as they lie in memory
        layout = one.shape.layout
        if layout is not None and layout.minor_to_major != tuple(range(one.shape.rank))[::-1]:
            return None
    sizes, given = result.shape.dimensions, source.shape.dimensions
    if vector != len(sizes) - 1 or sizes[-1] != given[-1]:
        return None
    before = [one for one, size in enumerate(sizes[:row]) if size != 1]
    first = next((one for one, size in enumerate(given[:-1]) if size != 1), None)
    return None if before or first is None else (first, len(given) - 1)
