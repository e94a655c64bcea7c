"""Loops that stack a value, one part for each iteration, before partitioning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report.data.sharding.nearness import steps_after
from hlomem.report.data.sharding.whole_program import SAME_VALUE, is_constraint

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction
    from hlomem.report.data.sharding.whole_program import WholeValue

_MAX_SEEN = 64


def stacked_length(value: WholeValue) -> int:
    """How many of a value the loop around it stacks, as it is or in another form; 1 if none."""
    pending = [(value.instruction, value.calls)]
    seen = set(pending)
    while pending and len(seen) < _MAX_SEEN:
        one, calls = pending.pop()
        for step in steps_after(one, calls):
            after, _ = step
            if after.opcode == "dynamic-update-slice" and after.operands[1] is one:
                return _parts(after)
            is_same = after.opcode in SAME_VALUE or is_constraint(after)
            is_same = is_same or after.opcode == "parameter" or after.opcode == "call"
            if is_same and step not in seen:
                seen.add(step)
                pending.append(step)
    return 1


def _parts(update: HloInstruction) -> int:
    """How many times the part that is written fits into what it is written into."""
    into, part = update.shape.dimensions, update.operands[1].shape.dimensions
    return max([one // max(its, 1) for one, its in zip(into, part, strict=False)], default=1)
