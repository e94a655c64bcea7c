"""The text of instructions as `from instruction:` shows it.

In: a module, where its bodies lie, and the style to print in. Out: the text of any instruction.
Where the module was printed in that style, which is the rule for newer XLA, its own lines are
reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.printer import format_instruction
from hlomem.hlo.proto_order import in_proto_order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.analysis.fused_bodies import Body
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.style import TextStyle

_ROOT = "ROOT "
_CONFIG = ", backend_config={"


class InstructionTexts:
    """Instruction → text."""

    def __init__(
        self, module: HloModule, bodies: Mapping[HloComputation, Body] | None, style: TextStyle
    ) -> None:
        self._style = style
        self._text = module.source.text
        self._lines: dict[HloComputation, list[str]] = {}
        self._bodies = bodies
        if bodies is not None and not self._is_written_alike(module.entry):
            self._bodies = None

    def __getitem__(self, instruction: HloInstruction) -> str:
        line = self._own_line(instruction)
        if line is None:
            return format_instruction(instruction, self._style)
        line = line[2:].removeprefix(_ROOT)
        start = line.find(_CONFIG) if self._style.proto_order else -1
        if start < 0:
            return line
        config = line[start + len(_CONFIG) - 1 :]
        if "}, " in config:  # more attributes may follow
            config = instruction.attributes["backend_config"]
        return line.replace(config, in_proto_order(config))

    def _own_line(self, instruction: HloInstruction) -> str | None:
        """The instruction as it stands in the module, if that is the way to print it."""
        if self._bodies is None or instruction.opcode.startswith("async-"):
            return None
        computation = instruction.parent
        lines = self._lines.get(computation)
        if lines is None:
            start, end = self._bodies[computation]
            lines = self._lines[computation] = self._text[start + 1 : end].split("\n")
        return lines[instruction.index] if len(lines) == len(computation.instructions) else None

    def _is_written_alike(self, computation: HloComputation) -> bool:
        """Whether the lines of a computation are in the style asked for."""
        for instruction in computation.instructions:
            if instruction.operands:
                line = self._own_line(instruction)
                printed = format_instruction(instruction, self._style)
                return line is not None and printed.split(",")[0] in line
        return False
