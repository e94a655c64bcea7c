"""Which of its operands an opcode may write its result over, and if not, why not.

In: how a user reads an operand, in numbers. Out: a reason, empty where it may. The planner asks
whether there is one, `hlomem explain` says which. Mirrors the rules by opcode of
`HloDataflowAnalysis::CanShareOperandBufferWithUser`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NOT_ELEMENTWISE = "only an elementwise operation may be written over what it reads"
OTHER_SHAPE = "has another shape or layout than the result"
INSIDE_FUSION = "not everything the fusion makes of it is elementwise"
BY_BACKEND = "the backend's own rules do not allow it"
COPY = "a copy is made to be elsewhere"


class Reading(NamedTuple):
    """How a user reads an operand."""

    numbers: Sequence[int]
    """As which of its operands."""
    operand_count: int
    """How many it has."""
    output_index: Sequence[int]
    """The part of the result that would be written over it."""
    user_count: int
    """How many instructions read the operand."""


def _always(_: Reading) -> str:
    return ""


def _only_operand(number: int) -> Callable[[Reading], str]:
    reason = f"only operand {number} may be overwritten, where it is no other operand"

    def rule(reading: Reading) -> str:
        return "" if list(reading.numbers) == [number] else reason

    return rule


def _sort(reading: Reading) -> str:
    if reading.user_count != 1:
        return f"{reading.user_count} instructions read it; a sort overwrites what it reads alone"
    number = reading.output_index[0] if reading.output_index else 0
    if reading.operand_count == 1 or list(reading.numbers) == [number]:
        return ""
    return f"result {number} of a sort may overwrite operand {number} only"


def _undeclared(_: Reading) -> str:
    return "the custom call does not declare that it writes there"


WHY_NOT: dict[str, Callable[[Reading], str]] = {
    "conditional": _always,
    "custom-call": _undeclared,
    "dynamic-update-slice": _only_operand(0),
    "scatter": _only_operand(0),
    "set-dimension-size": _only_operand(0),
    "sort": _sort,
    "triangular-solve": _only_operand(1),
    "while": _always,
}
"""The opcodes with a rule of their own."""
