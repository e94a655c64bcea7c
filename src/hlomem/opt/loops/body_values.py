"""The values of a loop's first body that can be stacked or recomputed, fusions looked into.

A fusion that writes stacks, or has several results, is not one value: those in its body are. What
runs asynchronously is a value where it is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.opt.loops.stacks import fusion_of, is_transparent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.opt.loops.pairs import LoopPair

_NOT_VALUES = ("parameter", "async-start")
_NOT_INSIDE = ("parameter", "tuple", "dynamic-update-slice")


class BodyValues:
    """The values of a first body."""

    def __init__(self, pair: LoopPair) -> None:
        self._body = pair.first.body
        writing = {stack.write.runs for stack in pair.stacks}
        self._owner_of: dict[HloComputation, HloInstruction] = {}
        """By body that is looked into: the instruction of the loop's body that runs it."""
        for instruction in self._body.instructions:
            fusion = fusion_of(instruction)
            if fusion is None or not is_transparent(fusion):
                continue
            if instruction in writing or fusion.shape.is_tuple:
                self._owner_of[fusion.called_computations[0]] = instruction
        self._opened = frozenset(self._owner_of.values())

    def owner(self, value: HloInstruction) -> HloInstruction | None:
        """The instruction of the body that computes a value inside; None for one of the body."""
        return self._owner_of.get(value.parent)

    def __iter__(self) -> Iterator[HloInstruction]:
        """All values, operands before users."""
        for instruction in self._body.instructions:
            if instruction in self._opened:
                fusion = fusion_of(instruction)
                assert fusion is not None
                for inside in fusion.called_computations[0].instructions:
                    if inside.opcode not in _NOT_INSIDE:
                        yield inside
            elif instruction.opcode not in _NOT_VALUES and instruction is not self._body.root:
                yield instruction

    def place(self, value: HloInstruction) -> tuple[int, int]:
        """The place of a value among all."""
        owner = self.owner(value)
        return (value.index, -1) if owner is None else (owner.index, value.index)

    def operands(self, value: HloInstruction) -> list[HloInstruction]:
        """The values that one is computed from."""
        owner = self.owner(value)
        if owner is not None:
            return [self.resolve(owner, operand) for operand in value.operands]
        if value.opcode == "get-tuple-element" and value.operands[0] in self._opened:
            return [self.result(value)]
        if value.opcode == "async-done":
            [start] = value.operands
            return [self.result(value)] if start in self._opened else list(start.operands)
        return list(value.operands)

    def result(self, taken: HloInstruction) -> HloInstruction:
        """The value in a fusion that is looked into which an instruction takes of its results."""
        [owner] = taken.operands
        fusion = fusion_of(owner)
        assert fusion is not None
        root = fusion.called_computations[0].root
        if taken.opcode == "get-tuple-element":
            root = root.operands[taken.tuple_index]
        return self.resolve(owner, root)

    def is_result(self, value: HloInstruction) -> bool:
        """Whether a value of the body is a result of a fusion that is looked into."""
        return bool(value.operands) and value.operands[0] in self._opened

    @staticmethod
    def resolve(owner: HloInstruction, inside: HloInstruction) -> HloInstruction:
        """A value inside, or the one of the body that is handed in for it."""
        if inside.opcode != "parameter":
            return inside
        return owner.operands[inside.parameter_number]


def repeated_by(value: HloInstruction) -> HloInstruction | None:
    """The instruction that is cloned to compute a value again; None where there is none."""
    return fusion_of(value.operands[0]) if value.opcode == "async-done" else value
