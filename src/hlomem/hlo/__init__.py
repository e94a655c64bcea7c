"""HLO: what a program is. Usable alone: `parse` a text, look at the module, `format_module` it.

    module = parse(text)
    for instruction in module.entry.instructions:
        print(instruction.name, instruction.shape, instruction.operands)

Knows nothing of buffers. Mirrors `hlo/ir` and `hlo/parser` of XLA.
"""

from hlomem.hlo.ir import CalledComputation, HloComputation, HloInstruction, HloModule
from hlomem.hlo.opcodes import CallRole
from hlomem.hlo.parser import parse
from hlomem.hlo.printer import format_computation, format_instruction, format_module
from hlomem.hlo.style import TextStyle

__all__ = [
    "CallRole",
    "CalledComputation",
    "HloComputation",
    "HloInstruction",
    "HloModule",
    "TextStyle",
    "format_computation",
    "format_instruction",
    "format_module",
    "parse",
]
