"""Results that may overwrite operands, cached for plans of one program in many orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.alias_rules import can_share_operand_buffer, may_share_with_operand

if TYPE_CHECKING:
    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.machine_rules import AliasRules
    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import ShapeIndex

    _Question = tuple[HloInstruction, ShapeIndex, HloInstruction, ShapeIndex]


class Candidates(dict["HloInstruction", "tuple[HloValue, ...]"]):
    """The values that each instruction might overwrite: those that its operands define."""

    def __init__(self, dataflow: Dataflow, rules: AliasRules) -> None:
        super().__init__()
        self._sets = dataflow.value_sets
        self._rules = rules

    def __missing__(self, user: HloInstruction) -> tuple[HloValue, ...]:
        found: tuple[HloValue, ...] = ()
        if user.opcode != "copy" and may_share_with_operand(user, self._rules):
            sets, operands = self._sets, user.operands
            makers = operands if len(operands) < _MANY else frozenset(operands)
            read = [candidate for operand in operands for candidate in sets[operand][0]]
            found = tuple([candidate for candidate in read if candidate.instruction in makers])
        self[user] = found
        return found


_MANY = 16
"""The number of operands from which a set pays."""


class Sharing:
    """The answers of `can_share_operand_buffer` for one program on one machine."""

    __slots__ = ("_answers", "_dataflow", "_rules", "candidates")

    def __init__(self, dataflow: Dataflow, rules: AliasRules) -> None:
        self._dataflow = dataflow
        self._rules = rules
        self.candidates = Candidates(dataflow, rules)
        self._answers: dict[_Question, bool] = {}

    def is_possible(self, user: HloInstruction) -> bool:
        return may_share_with_operand(user, self._rules)

    def is_allowed(
        self,
        operand: HloInstruction,
        operand_index: ShapeIndex,
        user: HloInstruction,
        user_index: ShapeIndex,
    ) -> bool:
        """Whether a part of a user's result may overwrite a part of an operand."""
        question = operand, operand_index, user, user_index
        answer = self._answers.get(question)
        if answer is None:
            answer = can_share_operand_buffer(self._dataflow, *question, self._rules)
            self._answers[question] = answer
        return answer
