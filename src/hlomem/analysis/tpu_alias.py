"""The operands a TPU may overwrite, inferred from dumps, all explained (docs/tpu-rules.md)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.analysis.machine_rules import AliasRules
from hlomem.hlo.opcodes import Opcode

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import ShapeIndex

_SCALAR_SPACE = 6
_HINTS = re.compile(r'"aliasing_operands":\{"lists":\[((?:\{"indices":\[[^\]]*\]\},?)+)\]\}')
_GROUP = re.compile(r'\{"indices":\[([^\]]*)\]\}')
_NUMBER = re.compile(r'"(\d{1,9})"', re.ASCII)


def may_alias(operand: HloInstruction, user: HloInstruction, index: ShapeIndex) -> bool | None:
    """Whether a user may overwrite an operand; None leaves it to the rules of all machines."""
    if user.opcode == "all-reduce":  # in place, operand by operand
        number = index[0] if index else 0
        return user.operands[number] is operand and user.shape.subshape(index) == operand.shape
    if user.opcode == "fusion" and _is_hinted(operand, user, index):
        return True
    if operand.shape.memory_space == _SCALAR_SPACE and _copies_argument(operand):
        # Only these copies are in that space before buffer assignment. Coloring moves the other
        # values there, so shapes that are equal in the text differ until then.
        return False
    return None


def _is_hinted(operand: HloInstruction, user: HloInstruction, index: ShapeIndex) -> bool:
    """Whether an earlier pass marked a fusion as in place, with operands numbered first."""
    hints = _HINTS.search(user.attribute_text)
    if hints is None or len(index) > 1:
        return False
    count = len(user.operands)
    result = count + (index[0] if index else 0)
    for group in _GROUP.findall(hints[1]):
        numbers = set(map(int, _NUMBER.findall(group)))
        if result in numbers:
            return any(user.operands[number] is operand for number in numbers if number < count)
    return False


def _copies_argument(instruction: HloInstruction) -> bool:
    if instruction.opcode != "copy" or not instruction.parent.is_entry:
        return False
    return instruction.operands[0].opcode == "parameter"


RULES = AliasRules(may_alias, frozenset[Opcode]({"all-reduce"}))
"""The rules of every libtpu seen."""
