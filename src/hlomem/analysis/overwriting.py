"""Why an opcode may not overwrite an operand with its result.

The planner tests for a reason, `hlomem explain` prints it. Mirrors the rules by opcode of
`HloDataflowAnalysis::CanShareOperandBufferWithUser`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.hlo.opcodes import rules_by_opcode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.hlo.traits import Sharing

NOT_ELEMENTWISE = "only an elementwise operation may be written over what it reads"
OTHER_SHAPE = "has another shape or layout than the result"
INSIDE_FUSION = "not everything the fusion makes of it is elementwise"
BY_BACKEND = "the backend's own rules do not allow it"
COPY = "a copy is made to be elsewhere"


class Reading(Struct, frozen=True):
    """The way a user reads an operand."""

    numbers: Sequence[int]
    """The positions of the operand."""
    operand_count: int
    output_index: Sequence[int]
    """The part of the result that would overwrite it."""
    user_count: int
    """The number of instructions that read the operand."""


def _only_operand(number: int) -> Callable[[Reading], str]:
    reason = f"only operand {number} may be overwritten, where it is no other operand"

    def rule(reading: Reading) -> str:
        return "" if list(reading.numbers) == [number] else reason

    return rule


def _same_number(reading: Reading) -> str:
    if reading.user_count != 1:
        return f"{reading.user_count} instructions read it; only what it alone reads is overwritten"
    number = reading.output_index[0] if reading.output_index else 0
    if reading.operand_count == 1 or list(reading.numbers) == [number]:
        return ""
    return f"result {number} may overwrite operand {number} only"


_REASON_BY_SHARING: Mapping[Sharing, Callable[[Reading], str]] = {
    "any operand": lambda _: "",
    "only declared": lambda _: "the instruction does not declare that it writes there",
    "only first": _only_operand(0),
    "only second": _only_operand(1),
    "same number": _same_number,
}
WHY_NOT = rules_by_opcode(lambda traits: traits.shares, _REASON_BY_SHARING)
"""By opcode; empty if it may."""
