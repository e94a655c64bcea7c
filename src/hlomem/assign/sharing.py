"""Results that may be written over operands that die; each question is answered once.

In: the values and the rules of the machine. Out: yes or no, which no order of instructions changes,
so that plans of one program in many orders ask once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.alias_rules import can_share_operand_buffer, may_share_with_operand

if TYPE_CHECKING:
    from collections.abc import Callable

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


class OperandValues(dict["HloInstruction", "tuple[HloValue, ...] | None"]):
    """The value that each operand of an instruction is; found when it is looked up.

    None where an operand may be one of several.
    """

    def __init__(self, dataflow: Dataflow) -> None:
        super().__init__()
        self._sets = dataflow.value_sets

    def __missing__(self, user: HloInstruction) -> tuple[HloValue, ...] | None:
        sets = self._sets
        reads = [sets[operand][0] for operand in user.operands]
        found: tuple[HloValue, ...] | None = tuple([values[0] for values in reads if values])
        if sum(map(len, reads)) != len(reads):
            found = None
        self[user] = found
        return found

    def all_of(self, user: HloInstruction) -> tuple[HloValue, ...]:
        """Every value an operand may be, operand by operand."""
        known = self[user]
        if known is not None:
            return known
        return tuple([value for operand in user.operands for value in self._sets[operand][0]])
