"""The bytes that instructions read and write, of parts of buffers the parts."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hlomem.hlo.library_calls import is_library_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.opt.orders.speeds import Speeds

_READS_PART = frozenset({"dynamic-slice", "gather", "slice"})
"""Opcodes that read of their first operand what they return."""
_WRITES_PART = frozenset({"dynamic-update-slice", "scatter"})
"""Opcodes that write into the memory of their first operand."""


_NARROW = frozenset({"bf16", "f16"})
_SORTS_BY_DIGITS = "xla.gpu.ext.cub_sort"
_PASSES_BY_DIGITS = 8
"""Four digits of keys of 32 bits, each counted and moved: 7 to 13 passes by what they took."""


class Traffic:
    def __init__(self, size_of: Callable[[Shape], int], speeds: Speeds | None = None) -> None:
        self._size_of = size_of
        self._scatter_factor = 1 if speeds is None else speeds.scatter_factor
        self._narrow_factor = 1 if speeds is None else speeds.narrow_scatter_factor
        self._known: dict[HloComputation, dict[HloInstruction, int]] = {}
        """By body of a fusion: what its results need of its values."""

    def of(self, instruction: HloInstruction) -> int:
        """Bytes that an instruction other than a fusion reads and writes."""
        first, *rest = instruction.operands or (None,)
        others = sum(map(self.bytes_of, rest))
        if instruction.opcode in _READS_PART:
            return 2 * self.bytes_of(instruction) + others
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
        needed = self._needed(body)
        read = sum(
            self._size_of(parameter.shape) * needed[parameter] // _elements(parameter.shape)
            for parameter in body.parameters
            if needed.get(parameter)
        )
        return read + self._written(body.root) + sum(map(self._sorted, body.instructions))

    def _sorted(self, instruction: HloInstruction) -> int:
        """Bytes that a sort or a Fourier transform reads and writes again.

        A sort goes over all as often as rows halve, CUB's by digits of keys, a transform once for
        every dimension.
        """
        target = instruction.custom_call_target or ""
        if target.startswith(_SORTS_BY_DIGITS):
            return 2 * (_PASSES_BY_DIGITS - 1) * sum(map(self.bytes_of, instruction.operands))
        if instruction.opcode == "fft":
            moved = self.bytes_of(instruction) + self.bytes_of(instruction.operands[0])
            return (len(instruction.integers("fft_length")) - 1) * moved
        if instruction.opcode != "sort":
            return 0
        [dimension] = instruction.integers("dimensions")
        length = instruction.operands[0].shape.dimensions[dimension]
        passes = max(length - 1, 1).bit_length()
        return 2 * (passes - 1) * self.bytes_of(instruction)

    def bytes_of(self, instruction: HloInstruction) -> int:
        return sum(self._size_of(leaf) for _, leaf in instruction.shape.leaves())

    def _without_workspace(self, call: HloInstruction) -> int:
        shape = call.shape
        return self._size_of(shape.elements[0]) if shape.is_tuple else self.bytes_of(call)

    def _needed(self, body: HloComputation) -> dict[HloInstruction, int]:
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
        return self._needed(body).get(body.parameters[number], 0)

    def _written(self, root: HloInstruction) -> int:
        if root.opcode == "tuple":
            return sum(map(self._written, root.operands))
        if root.opcode == "bitcast":
            return self._written(root.operands[0])
        if root.opcode == "fusion":
            return self._written(root.called_computations[0].root)
        return self._part(root) if root.opcode in _WRITES_PART else self.bytes_of(root)

    def _added(self, values: HloInstruction) -> int:
        """Bytes of values that are added to what is there, by how much longer they take."""
        is_narrow = values.shape.element_type.text in _NARROW
        return self.bytes_of(values) * (self._narrow_factor if is_narrow else self._scatter_factor)

    def _part(self, writer: HloInstruction) -> int:
        """Bytes of what is written into another value: one operand, or as many as there are."""
        if writer.opcode == "scatter":
            count = (len(writer.operands) - 1) // 2
            return sum(map(self._added, writer.operands[count + 1 :]))
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
