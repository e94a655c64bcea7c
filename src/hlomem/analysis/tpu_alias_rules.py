"""What a TPU may write over its operands; read off dumps (docs/tpu-rules.md).

The compiler is not public. Two rules beside those of all backends explain every dump there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import ShapeIndex

SHARING_OPCODES = frozenset({"all-reduce"})

_SCALAR_SPACE = 6


def may_alias(operand: HloInstruction, user: HloInstruction, index: ShapeIndex) -> bool | None:
    """Whether a user may overwrite an operand; None where the rules of all backends decide."""
    if user.opcode == "all-reduce":
        return _reduces_into(operand, user, index)
    if operand.shape.memory_space == _SCALAR_SPACE and _copies_argument(operand):
        # Such copies lie there before buffers are assigned. Everything else is put there by the
        # colouring, so that until then shapes differ which agree in the text.
        return False
    return None


def _copies_argument(instruction: HloInstruction) -> bool:
    """Whether it copies what the program was called with."""
    if instruction.opcode != "copy" or not instruction.parent.is_entry:
        return False
    return instruction.operands[0].opcode == "parameter"


def _reduces_into(operand: HloInstruction, user: HloInstruction, index: ShapeIndex) -> bool:
    """An all-reduce works in place, operand by operand."""
    number = index[0] if index else 0
    return user.operands[number] is operand and user.shape.subshape(index) == operand.shape
