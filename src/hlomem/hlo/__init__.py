"""HLO programs: parse or build a module, edit it, print it; independent of buffers.

    module = parse(text)
    for instruction in module.entry.instructions:
        print(instruction.name, instruction.shape, instruction.operands)

Mirrors `hlo/ir` and `hlo/parser` of XLA. The names below are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hlomem.base.submodules import find_submodules

if TYPE_CHECKING:
    from hlomem.hlo.builder import ComputationBuilder, ModuleBuilder
    from hlomem.hlo.ir import CalledComputation, HloComputation, HloInstruction, HloModule
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.rewrite import Rewriter
    from hlomem.hlo.text.parser import canonicalize, parse
    from hlomem.hlo.text.printer import format_computation, format_instruction, format_module
    from hlomem.hlo.text.style import TextStyle
    from hlomem.hlo.traits import CallRole

__all__ = [
    "CallRole",
    "CalledComputation",
    "ComputationBuilder",
    "HloComputation",
    "HloInstruction",
    "HloModule",
    "ModuleBuilder",
    "Opcode",
    "Rewriter",
    "TextStyle",
    "canonicalize",
    "format_computation",
    "format_instruction",
    "format_module",
    "parse",
]

_HOME = {
    "CallRole": "traits",
    "Opcode": "opcodes",
    "CalledComputation": "ir",
    "ComputationBuilder": "builder",
    "HloComputation": "ir",
    "HloInstruction": "ir",
    "HloModule": "ir",
    "ModuleBuilder": "builder",
    "Rewriter": "rewrite",
    "TextStyle": "text.style",
    "canonicalize": "text.parser",
    "format_computation": "text.printer",
    "format_instruction": "text.printer",
    "format_module": "text.printer",
    "parse": "text.parser",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        return find_submodules(__name__)(name)
    value = getattr(import_module(f"hlomem.hlo.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
