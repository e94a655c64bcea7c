"""What a TPU may write over its operands; read off dumps (docs/tpu-rules.md).

The compiler is not public. Two rules beside those of all machines explain every dump there is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.machines.alias import AliasRules

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import ShapeIndex
    from hlomem.machines.options import Options

SHARING_OPCODES = frozenset({"all-reduce"})


def rules_for(_options: Options) -> AliasRules:
    """The rules of a release; those of all libtpu seen are the same."""
    return AliasRules(may_alias, SHARING_OPCODES)


_SCALAR_SPACE = 6

_HINTS = re.compile(r'"aliasing_operands":\{"lists":\[((?:\{"indices":\[[^\]]*\]\},?)+)\]\}')
_GROUP = re.compile(r'\{"indices":\[([^\]]*)\]\}')
_NUMBER = re.compile(r'"(\d{1,9})"', re.ASCII)


def may_alias(operand: HloInstruction, user: HloInstruction, index: ShapeIndex) -> bool | None:
    """Whether a user may overwrite an operand; None where the rules of all machines decide."""
    if user.opcode == "all-reduce":
        return _reduces_into(operand, user, index)
    if user.opcode == "fusion" and _is_hinted(operand, user, index):
        return True
    if operand.shape.memory_space == _SCALAR_SPACE and _copies_argument(operand):
        # Such copies lie there before buffers are assigned. Everything else is put there by the
        # colouring, so that until then shapes differ which agree in the text.
        return False
    return None


def _is_hinted(operand: HloInstruction, user: HloInstruction, index: ShapeIndex) -> bool:
    """Whether an earlier pass found that a fusion can work in place.

    It lists numbers that go together: first the operands are counted, then the results.
    """
    hints = _HINTS.search(user.attribute_text)
    if hints is None or len(index) > 1:
        return False
    count = len(user.operands)
    result = count + (index[0] if index else 0)
    for group in _GROUP.findall(hints[1]):
        numbers = set(map(int, _NUMBER.findall(group)))
        if result in numbers:
            return any(user.operands[each] is operand for each in numbers if each < count)
    return False


def _copies_argument(instruction: HloInstruction) -> bool:
    """Whether it copies what the program was called with."""
    if instruction.opcode != "copy" or not instruction.parent.is_entry:
        return False
    return instruction.operands[0].opcode == "parameter"


def _reduces_into(operand: HloInstruction, user: HloInstruction, index: ShapeIndex) -> bool:
    """An all-reduce works in place, operand by operand."""
    number = index[0] if index else 0
    return user.operands[number] is operand and user.shape.subshape(index) == operand.shape
