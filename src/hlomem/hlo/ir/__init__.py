"""The program: a module of computations, each a list of instructions with identity.

In: what `hlomem.hlo.text.parser` or `hlomem.proto.module` read or `hlomem.hlo.builder` made. Out:
objects linked to each other (operands, users, called computations), read-only by custom:
`hlomem.hlo.rewrite` makes edited copies. A computation that only fusions reach stays text, or a
message, until somebody asks for its instructions; an attribute stays so until somebody asks for its
value. Either may therefore raise `ParseError`, of a message `InputError`, when first read;
`HloModule.validate` reads everything at once. Apart from that nobody can tell
whether a body has been read: only `hlo` asks (`is_open`), and what it answers about a body
(`outline`, `calls`, `outer_computations`) is the same before and after.

Mirrors `hlo/ir/hlo_module.h`, `hlo_computation.h` and `hlo_instruction.h`, with their nouns, a file
for each.
"""

from __future__ import annotations

from hlomem.hlo.ir.computation import (
    MAIN_THREAD,
    BodyCall,
    BodyPlace,
    BodyReader,
    HloComputation,
)
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
