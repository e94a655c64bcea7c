"""The text after `from instruction:`, reused from a module printed in the same style."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import ASYNC_OPCODES
from hlomem.hlo.text.printer import format_instruction

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.text.style import TextStyle

_ROOT = "ROOT "
_CONFIG = ", backend_config={"
_BEFORE_CONFIG = len(_CONFIG) - 1


class InstructionTexts:
    def __init__(self, module: HloModule, style: TextStyle) -> None:
        self._style = style
        self._lines: dict[HloComputation, list[str]] = {}
        self._has_lines = self._is_written_alike(module.entry)
        self._config_in_order: dict[str, str] = {}

    def __getitem__(self, instruction: HloInstruction) -> str:
        lines = self._lines.get(instruction.parent)
        if lines is None:
            lines = self._lines[instruction.parent] = self._finish(instruction.parent)
        return lines[instruction.index] if lines else format_instruction(instruction, self._style)

    def _finish(self, computation: HloComputation) -> list[str]:
        """The text of a computation's instructions; empty if its lines cannot be reused."""
        lines = self._cut(computation) if self._has_lines else None
        if lines is None:
            return []
        if self._style.proto_order:
            for number, line in enumerate(lines):
                start = line.find(_CONFIG)
                if start >= 0:
                    lines[number] = self._order_config(computation, number, line, start)
        for instruction in computation.instructions:
            if instruction.opcode in ASYNC_OPCODES:
                lines[instruction.index] = format_instruction(instruction, self._style)
        return lines

    def _order_config(self, computation: HloComputation, number: int, line: str, start: int) -> str:
        """A line with the fields of its config in proto order."""
        start += _BEFORE_CONFIG
        config = line[start:]
        ordered = self._config_in_order.get(config)
        if ordered is None:
            ordered = _in_order(computation.instructions[number], config)
            self._config_in_order[config] = ordered
        return line if ordered == config else line[:start] + ordered

    def _cut(self, computation: HloComputation) -> list[str] | None:
        body = computation.body_text
        if body is None:
            return None
        # Every line begins with two spaces, the root's also with its mark.
        lines = body[3:].split("\n  ")
        if len(lines) != len(computation.instructions):
            return None
        root = computation.root.index
        lines[root] = lines[root].removeprefix(_ROOT)
        return lines

    def _is_written_alike(self, computation: HloComputation) -> bool:
        """Whether the lines of a computation are in the wanted style."""
        lines = self._cut(computation)
        if lines is None:
            return False
        for instruction, line in zip(computation.instructions, lines, strict=True):
            if instruction.operands and instruction.opcode not in ASYNC_OPCODES:
                return format_instruction(instruction, self._style).split(",")[0] in line
        return False


def _in_order(instruction: HloInstruction, rest: str) -> str:
    """The rest of a line from its config on, with fields in proto order."""
    from hlomem.hlo.text.proto_order import in_proto_order  # noqa: PLC0415 - large tables

    if "}, " not in rest:
        return in_proto_order(rest)
    config = instruction.attributes["backend_config"]  # more attributes may follow
    return rest.replace(config, in_proto_order(config))
