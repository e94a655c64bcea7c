"""In-place writes: may an instruction overwrite an operand, judged by its printed text?

An element-wise instruction reads each element once, at the place it writes; XLA lets it, and
fusions of such, reuse an operand of the same shape (`CanShareOperandBufferWithUser`). Instructions
that read an operand at other places than they write it would read overwritten elements. A dump
does not show the inside of a fusion; `hlomem.check.fusions` looks there when there is a module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.check.opcodes import ONLY_INTO_OPERAND, READS_ELSEWHERE

if TYPE_CHECKING:
    from hlomem.view.instruction_line import PrintedInstruction
    from hlomem.view.joined import PlacedValue


def why_not_in_place(
    earlier: PlacedValue, later: PlacedValue, text: PrintedInstruction, numbers: list[int]
) -> str:
    """Why the user `later` may not be written over its operand `earlier`; empty when it may.

    `numbers` are the operands it reads the value as.
    """
    opcode = text.opcode
    if opcode in READS_ELSEWHERE:
        return f"`{opcode}` reads its operand at other places than it writes"
    if opcode == "fusion":
        return ""
    if opcode == "custom-call":
        return "the custom call does not declare that it writes into this operand"
    if opcode in ONLY_INTO_OPERAND and numbers != [ONLY_INTO_OPERAND[opcode]]:
        return f"`{opcode}` writes into its operand {ONLY_INTO_OPERAND[opcode]} only"
    if opcode == "scatter" and max(numbers) >= len(text.operands) // 2:
        return "`scatter` writes into the operands it updates only"
    if opcode == "sort" and later.index and later.index[0] not in numbers:
        return f"output {later.index[0]} of the sort is another operand's"
    read_as = [name for number, name in enumerate(text.operands) if number in numbers]
    if earlier.value.name in read_as and earlier.value.shape != later.value.shape:
        # Under another name it has the shape that a bitcast gave it.
        return f"its shape {later.value.shape} is not its operand's"
    return ""
