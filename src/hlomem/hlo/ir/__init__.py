"""The program: a module of computations, each a list of linked instructions.

Read-only by convention; `hlomem.hlo.rewrite` makes edited copies. Bodies of fusions and attributes
stay text, or a proto message, until they are used, which may then raise `ParseError`, or
`InputError` for a message; `HloModule.validate` reads everything. Otherwise it makes no difference
whether a body has been read.

Mirrors `hlo/ir/hlo_module.h`, `hlo_computation.h` and `hlo_instruction.h`, a file for each.
"""

from __future__ import annotations

from hlomem.hlo.ir.computation import MAIN_THREAD, BodyCall, BodyPlace, BodyReader, HloComputation
from hlomem.hlo.ir.instruction import CalledComputation, HloInstruction, UnreadAttributes
from hlomem.hlo.ir.module import Creation, HloModule, Origins, TextReader

__all__ = [
    "MAIN_THREAD",
    "BodyCall",
    "BodyPlace",
    "BodyReader",
    "CalledComputation",
    "Creation",
    "HloComputation",
    "HloInstruction",
    "HloModule",
    "Origins",
    "TextReader",
    "UnreadAttributes",
]
