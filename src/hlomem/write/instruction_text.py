"""The text of instructions as `from instruction:` shows it.

In: a module and the style to print in. Out: the text of any instruction.
Where the module was printed in that style, which is the rule for newer XLA, its own lines are
reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import ASYNC_OPCODES
from hlomem.hlo.text.printer import format_instruction

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.text.style import TextStyle

_ROOT = "ROOT "
_CONFIG = ", backend_config={"


class InstructionTexts:
    """Instruction → text."""

    def __init__(self, module: HloModule, style: TextStyle) -> None:
        self._style = style
        self._lines: dict[HloComputation, list[str] | None] = {}
        self._has_lines = self._is_written_alike(module.entry)

    def __getitem__(self, instruction: HloInstruction) -> str:
        try:
            lines = self._lines[instruction.parent]
        except KeyError:
            lines = self._cut(instruction.parent) if self._has_lines else None
            self._lines[instruction.parent] = lines
        if lines is None or instruction.opcode in ASYNC_OPCODES:
            return format_instruction(instruction, self._style)
        line = lines[instruction.index]
        if _CONFIG not in line or not self._style.proto_order:
            return line
        config = line[line.index(_CONFIG) + len(_CONFIG) - 1 :]
        if "}, " in config:  # more attributes may follow
            config = instruction.attributes["backend_config"]
        from hlomem.hlo.text.proto_order import in_proto_order  # noqa: PLC0415 - large tables

        return line.replace(config, in_proto_order(config))

    def _cut(self, computation: HloComputation) -> list[str] | None:
        """The lines of a computation, if there is one for each instruction."""
        body = computation.body_text
        if body is None:
            return None
        # Every line begins with two spaces, one of them perhaps with the mark of the root, too.
        lines = body[3:].split("\n  ")
        if len(lines) != len(computation.instructions):
            return None
        root = computation.root.index
        lines[root] = lines[root].removeprefix(_ROOT)
        return lines

    def _is_written_alike(self, computation: HloComputation) -> bool:
        """Whether the lines of a computation are in the style asked for."""
        lines = self._cut(computation)
        if lines is None:
            return False
        for instruction, line in zip(computation.instructions, lines, strict=True):
            if instruction.operands and instruction.opcode not in ASYNC_OPCODES:
                return format_instruction(instruction, self._style).split(",")[0] in line
        return False
