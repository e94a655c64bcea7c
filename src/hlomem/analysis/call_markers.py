"""Custom calls that mark inlined functions, and forward their operands.

Since jaxlib 0.12 and libtpu 0.0.50 the marker before the inlined code returns a tuple of its
operands, and the one after it its operand; earlier they return new values. Targets as in
`hlo/ir/hlo_instructions.h`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction

BEFORE = "__xla_internal_call_marker_before"
AFTER = "__xla_internal_call_marker_after"


def is_call_marker(instruction: HloInstruction) -> bool:
    """Whether an instruction marks inlined code."""
    return instruction.opcode == "custom-call" and instruction.custom_call_target in (BEFORE, AFTER)
