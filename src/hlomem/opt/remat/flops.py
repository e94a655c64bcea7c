"""The cost of running an instruction again: operations and bytes, by a count of our own.

Two for each multiplication and addition of a dot or convolution, else one for each element.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import RUN_IN_PLACE
from hlomem.opt.orders.cost import product_flops
from hlomem.opt.orders.effects import takes_time
from hlomem.opt.orders.trips import trip_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.pipeline import Stages

_MOVING = """
    broadcast concatenate copy dynamic-slice dynamic-update-slice iota reshape slice transpose
"""
_MOVES = frozenset(_MOVING.split())
"""Opcodes that move elements and compute nothing; their bytes are counted, no operations."""


class Costs:
    """Operations and bytes of instructions, those of bodies worked out once."""

    def __init__(self, size_of: Callable[[Shape], int]) -> None:
        self._size_of = size_of
        self._bodies: dict[HloComputation, int] = {}
        self._flops: dict[HloInstruction, int] = {}
        self._touched: dict[HloInstruction, int] = {}

    def flops(self, instruction: HloInstruction) -> int:
        """Operations of one instruction; a loop counts one pass where no number is known."""
        known = self._flops.get(instruction)
        if known is None:
            known = self._flops[instruction] = self._count(instruction)
        return known

    def _count(self, instruction: HloInstruction) -> int:
        opcode = instruction.opcode
        if opcode in _MOVES or not takes_time(instruction):
            return 0
        if opcode == "fusion" or opcode in RUN_IN_PLACE:
            inside = sum(self._flops_in(callee) for callee in instruction.called_computations)
            return inside * (trip_count(instruction) if opcode == "while" else 1)
        if products := product_flops(instruction):
            return products
        if opcode in ("reduce", "reduce-window", "scatter", "select-and-scatter"):
            return sum(_elements(operand.shape) for operand in instruction.operands)
        return _elements(instruction.shape)

    def bytes_touched(self, instruction: HloInstruction) -> int:
        """Bytes of what one instruction reads and makes."""
        if not takes_time(instruction):
            return 0
        known = self._touched.get(instruction)
        if known is None:
            known = self._touched[instruction] = sum(
                self._size_of(leaf)
                for part in (instruction, *instruction.operands)
                for _, leaf in part.shape.leaves()
            )
        return known

    def total(self, instructions: Iterable[HloInstruction]) -> int:
        """Operations of several."""
        return sum(map(self.flops, instructions))

    def _flops_in(self, body: HloComputation) -> int:
        known = self._bodies.get(body)
        if known is None:
            known = self._bodies[body] = self.total(body.instructions)
        return known


def _elements(shape: Shape) -> int:
    return sum(prod(leaf.dimensions) for _, leaf in shape.leaves())


def program_flops(stages: Stages) -> int:
    """Operations of a program, loops as often as they are known to run."""
    return Costs(stages.options.machine.size_of).total(stages.module.entry.instructions)
