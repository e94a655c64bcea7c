"""Results that may be written over operands that die; each question is answered once.

In: the values and the rules of the machine. Out: yes or no, which no order of instructions changes,
so that plans of one program in many orders ask once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.alias_rules import can_share_operand_buffer, may_share_with_operand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import ShapeIndex
    from hlomem.machines.alias import AliasRules

    _Question = tuple[HloInstruction, ShapeIndex, HloInstruction, ShapeIndex]


class _Possible(dict["HloInstruction", bool]):
    """For each instruction, can it have the place of an operand; found when it is looked up."""

    def __init__(self, rules: AliasRules) -> None:
        super().__init__()
        self._rules = rules

    def __missing__(self, user: HloInstruction) -> bool:
        answer = self[user] = may_share_with_operand(user, self._rules)
        return answer


class Sharing:
    """The answers of `can_share_operand_buffer` for one program on one machine."""

    __slots__ = ("_answers", "_dataflow", "_rules", "is_possible")

    def __init__(self, dataflow: Dataflow, rules: AliasRules) -> None:
        self._dataflow = dataflow
        self._rules = rules
        self._answers: dict[_Question, bool] = {}
        self.is_possible: Callable[[HloInstruction], bool] = _Possible(rules).__getitem__
        """True for a user that may have the place of some operand."""

    def is_allowed(
        self,
        operand: HloInstruction,
        operand_index: ShapeIndex,
        user: HloInstruction,
        user_index: ShapeIndex,
    ) -> bool:
        """Whether a user may have the place of a part of an operand."""
        question = operand, operand_index, user, user_index
        answer = self._answers.get(question)
        if answer is None:
            answer = can_share_operand_buffer(self._dataflow, *question, self._rules)
            self._answers[question] = answer
        return answer


class PlaceGivers(dict["HloValue", "tuple[HloValue, ...]"]):
    """The values in whose place another may come if they die then; found when it is looked up.

    Operands that are alone in their buffers, in order; what is `allowed` is not asked yet.
    """

    def __init__(
        self, dataflow: Dataflow, buffer_of: Mapping[HloValue, HloBuffer], sharing: Sharing
    ) -> None:
        super().__init__()
        self._sets = dataflow.value_sets
        self._buffer_of = buffer_of
        self._sharing = sharing

    def __missing__(self, value: HloValue) -> tuple[HloValue, ...]:
        instruction = value.instruction
        found: tuple[HloValue, ...] = ()
        if instruction.opcode != "copy" and self._sharing.is_possible(instruction):
            operands = instruction.operands
            found = tuple(
                [
                    read
                    for operand in operands
                    for read in self._sets[operand][0]
                    if len(self._buffer_of[read].values) == 1
                    and (read.instruction is operand or read.instruction in operands)
                ]
            )
        self[value] = found
        return found
