"""Whether an instruction may write its result over an operand, by what its text says.

An element-wise instruction reads each element once, at the place it writes; XLA lets it, and
fusions of such, reuse an operand of the same shape (`CanShareOperandBufferWithUser`). Instructions
that read an operand at other places than they write it would read what they have overwritten.
What happens inside a fusion is not in a dump; `hlomem.check.fusions` looks when there is a module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.view.instruction_line import PrintedInstruction
    from hlomem.view.joined import PlacedValue

_OPCODES = """
    all-gather all-gather-start all-to-all batch-norm-grad batch-norm-inference batch-norm-training
    broadcast cholesky concatenate constant convolution copy dot dynamic-slice fft gather iota
    pad parameter ragged-all-to-all ragged-dot reduce reduce-scatter reduce-window reverse
    rng-bit-generator scaled-dot select-and-scatter slice topk transpose tuple
"""
_READS_ELSEWHERE = frozenset(_OPCODES.split())
_INTO_OPERAND = {
    "dynamic-update-slice": 0,
    "set-dimension-size": 0,
    "triangular-solve": 1,
}
"""What is written over one of its operands only, and which."""


def why_not_in_place(
    earlier: PlacedValue, later: PlacedValue, text: PrintedInstruction, numbers: list[int]
) -> str:
    """Why the user `later` may not be written over its operand `earlier`; empty when it may.

    `numbers` are the operands it reads the value as.
    """
    opcode = text.opcode
    if opcode in _READS_ELSEWHERE:
        return f"`{opcode}` reads its operand at other places than it writes"
    if opcode == "fusion":
        return ""
    if opcode == "custom-call":
        return "the custom call does not declare that it writes into this operand"
    if opcode in _INTO_OPERAND and numbers != [_INTO_OPERAND[opcode]]:
        return f"`{opcode}` writes into its operand {_INTO_OPERAND[opcode]} only"
    if opcode == "scatter" and max(numbers) >= len(text.operands) // 2:
        return "`scatter` writes into the operands it updates only"
    if opcode == "sort" and later.index and later.index[0] not in numbers:
        return f"output {later.index[0]} of the sort is another operand's"
    read_as = [name for number, name in enumerate(text.operands) if number in numbers]
    if earlier.value.name in read_as and earlier.value.shape != later.value.shape:
        # Under another name it has the shape that a bitcast gave it.
        return f"its shape {later.value.shape} is not its operand's"
    return ""
