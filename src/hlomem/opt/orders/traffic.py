"""The bytes that instructions read and write, of parts of buffers the parts."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hlomem.hlo.library_calls import is_library_call
from hlomem.opt.orders.indexing import Indexing
from hlomem.opt.orders.sorting import passed_again

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.opt.orders.speeds import Speeds

_READS_PART = frozenset({"dynamic-slice", "gather", "slice"})
"""Opcodes that read of their first operand what they return."""
_WRITES_PART = frozenset({"dynamic-update-slice", "scatter"})
"""Opcodes that write into the memory of their first operand."""


class Traffic:
    def __init__(self, size_of: Callable[[Shape], int], speeds: Speeds | None = None) -> None:
        self._size_of = size_of
        self._speeds = speeds
        self._indexing = Indexing(size_of, speeds)
        self._known: dict[HloComputation, dict[HloInstruction, int]] = {}
        """By body of a fusion: what its results need of its values."""

    def of(self, instruction: HloInstruction) -> int:
        """Bytes that an instruction other than a fusion reads and writes."""
        first, *rest = instruction.operands or (None,)
        others = sum(map(self.bytes_of, rest))
        if instruction.opcode in _READS_PART:
            return 2 * self.bytes_of(instruction) + others + self._padded(instruction)
        if instruction.opcode in _WRITES_PART:
            return others + self._part(instruction)
        others += self._sorted(instruction)
        if instruction.opcode == "custom-call" and is_library_call(instruction):
            others += self._without_workspace(instruction)
        else:
            others += self.bytes_of(instruction)
        return others if first is None else others + self.bytes_of(first)

    def of_fusion(self, body: HloComputation) -> int:
        """Bytes that a fusion reads and writes, of parameters the elements that it needs."""
        needed = self.needed(body)
        read = sum(
            self._size_of(parameter.shape) * needed[parameter] // _elements(parameter.shape)
            for parameter in body.parameters
            if needed.get(parameter)
        )
        again = sum(self._read_again(part, needed) for part in body.instructions)
        sorted_again = sum(map(self._sorted, body.instructions))
        return read + again + self._written(body.root) + sorted_again

    def _padded(self, instruction: HloInstruction) -> int:
        """The bytes that a gather by itself reads around its rows."""
        if instruction.opcode != "gather":
            return 0
        counted = self.bytes_of(instruction)
        return self._indexing.read_again(instruction, _elements(instruction.shape), counted)

    def _read_again(self, part: HloInstruction, needed: Mapping[HloInstruction, int]) -> int:
        """The bytes that a gather in a fusion reads more than once, as its results need it."""
        if part.opcode != "gather":
            return 0
        count = _elements(part.shape) if part.is_root else needed.get(part, 0)
        table = part.operands[0].shape
        counted = self._size_of(table) * min(count, _elements(table)) // _elements(table)
        return self._indexing.read_again(part, count, counted)

    def _sorted(self, instruction: HloInstruction) -> int:
        """Bytes that a sort or a Fourier transform reads and writes again."""
        given = sum(map(self.bytes_of, instruction.operands))
        return passed_again(instruction, given, self.bytes_of(instruction), self._speeds)

    def bytes_of(self, instruction: HloInstruction) -> int:
        return sum(self._size_of(leaf) for _, leaf in instruction.shape.leaves())

    def _without_workspace(self, call: HloInstruction) -> int:
        shape = call.shape
        return self._size_of(shape.elements[0]) if shape.is_tuple else self.bytes_of(call)

    def needed(self, body: HloComputation) -> dict[HloInstruction, int]:
        """By value of a fusion the elements that its results need of it."""
        if body in self._known:
            return self._known[body]
        needed = self._known[body] = {}

        def need(operand: HloInstruction, count: int) -> None:
            if operand.shape.is_array:
                known = needed.get(operand, 0)
                needed[operand] = min(known + count, _elements(operand.shape))

        for value in reversed(body.instructions):
            count = needed.get(value, 0)
            if value is body.root:
                count = _elements(value.shape) if value.shape.is_array else 1
            if not count:
                continue
            for number, operand in enumerate(value.operands):
                need(operand, self._elements_of(value, number, count))
        return needed

    def _elements_of(self, value: HloInstruction, number: int, count: int) -> int:
        """The elements of an operand that so many of a value are made of; a TPU nests fusions."""
        if value.opcode != "fusion":
            return _elements_of(value, number, count)
        [body] = value.called_computations
        return self.needed(body).get(body.parameters[number], 0)

    def _written(self, root: HloInstruction) -> int:
        if root.opcode == "tuple":
            return sum(map(self._written, root.operands))
        if root.opcode == "bitcast":
            return self._written(root.operands[0])
        if root.opcode == "fusion":
            return self._written(root.called_computations[0].root)
        return self._part(root) if root.opcode in _WRITES_PART else self.bytes_of(root)

    def _part(self, writer: HloInstruction) -> int:
        """Bytes of what is written into another value: one operand, or as many as there are."""
        if writer.opcode == "scatter":
            return self._indexing.written(writer)
        return self.bytes_of(writer.operands[1])


def _elements_of(value: HloInstruction, number: int, count: int) -> int:
    """The elements of an operand that so many of a value are made of."""
    operand = value.operands[number].shape
    whole = _elements(operand) if operand.is_array else 1
    if value.opcode in _WRITES_PART and number == 0:
        return 0
    if value.opcode in _READS_PART and number == 0:
        return min(count, whole)
    if value.shape.is_array and _elements(value.shape) == whole:
        return count
    return min(count, whole) if value.opcode == "broadcast" else whole


def _elements(shape: Shape) -> int:
    return prod(shape.dimensions) or 1
