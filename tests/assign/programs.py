"""What the steps of assigning are given, made of small programs."""

from __future__ import annotations

from hlomem.analysis.aliasing import HloBuffer
from hlomem.assign.problem import Problem, with_order
from hlomem.hlo.text.parser import parse
from hlomem.machines.options import Options
from hlomem.pipeline import start_stages


def module_of(*lines: str, header: str = "", before: str = "") -> str:
    """The text of a scheduled module whose entry has two parameters `a` and `b` of 256 bytes."""
    first = ["%a = f32[64]{0} parameter(0)", "%b = f32[64]{0} parameter(1)"]
    body = "\n".join(f"  {line}" for line in [*first, *lines])
    return f"HloModule m, is_scheduled=true{header}\n\n{before}ENTRY %e {{\n{body}\n}}\n"


def state(text: str, options: Options | None = None) -> Problem:
    """What assigning is given for a module."""
    stages = start_stages(parse(text), options)
    return with_order(stages.timeless, stages.live_ranges)


def buffer_named(problem: Problem, name: str) -> HloBuffer:
    """The buffer of the value an instruction defines."""
    return next(
        buffer
        for buffer in problem.aliasing.buffers
        if name in [value.instruction.name for value in buffer.values]
    )
