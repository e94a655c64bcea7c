"""The program under advice: its module, its memory, and how to plan variations of it.

The memory of a dump is XLA's plan; hlomem's own plans are made only for rules that change the
program, by a given planner, and compared with its plan of the unchanged program.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from hlomem.advice.functions import find_layers
from hlomem.assign.footprint import footprint
from hlomem.hlo.ir import HloModule

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.advice.functions import LayerFunction
    from hlomem.machines.machine import Machine
    from hlomem.pipeline import Stages
    from hlomem.report.data.memory import MemoryView, Space

_TOLERANCE = 0.001
"""The relative difference up to which our plan counts as equal to XLA's."""


class Case:
    """A program, its plan, and how to plan variations of it; computed on demand."""

    def __init__(
        self,
        program: HloModule | Callable[[], HloModule],
        memory: MemoryView,
        space: Space,
        plan_module: Callable[[HloModule], Stages],
        *,
        is_rebuilt: bool = False,
        notes: tuple[str, ...] = (),
    ) -> None:
        self._program = program
        self.memory = memory
        self.space = space
        self._plan_module = plan_module
        self.is_rebuilt = is_rebuilt
        """Whether the program was rebuilt from a dump, which omits the bodies of fusions."""
        self.notes = list(notes)

    @cached_property
    def module(self) -> HloModule:
        return self._program() if callable(self._program) else self._program

    @property
    def machine(self) -> Machine:
        return self.memory.machine

    @cached_property
    def layers(self) -> list[list[LayerFunction]]:
        """The functions of the forward pass that repeat, outermost first."""
        return find_layers(self.memory)

    def reserved(self, varied: HloModule | Stages) -> int:
        """The bytes our plan of a variation reserves in the space."""
        if isinstance(varied, HloModule):
            varied = self._plan_module(varied)
        return footprint(varied.assignment.allocations, self.space.color)

    @cached_property
    def stages(self) -> Stages:
        """Our plan of the program as it is."""
        return self._plan_module(self.module)

    @cached_property
    def planned_size(self) -> int:
        """The bytes our plan of the program reserves in the space."""
        return self.reserved(self.stages)

    @cached_property
    def is_xlas(self) -> bool:
        """Our plan of the program reserves what XLA's does, but for a thousandth."""
        return abs(self.planned_size - self.space.size) <= _TOLERANCE * self.space.size

    def saved_by(self, varied: HloModule | Stages) -> int:
        """The bytes our plan of a variation saves against our plan of the program."""
        if not self.is_xlas:
            ours, theirs = self.planned_size, self.space.size
            note = f"our plan of it reserves {ours} bytes, XLA's {theirs}: savings may differ"
            if note not in self.notes:
                self.notes.append(note)
        return self.planned_size - self.reserved(varied)
