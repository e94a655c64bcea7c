"""The program that is advised on: its module, its memory, and how to plan variations of it.

In: a program, or a dump with or without its program. Out: `Subject`. The memory of a dump is the
one XLA planned; plans of our own are made only for rules that change the program, and compared with
our plan of the program as it is.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from hlomem.advice.layers import Layers, find_layers
from hlomem.advice.replay import Replay
from hlomem.api.plan import Plan, plan
from hlomem.api.replan import replan
from hlomem.assign.footprint import footprint
from hlomem.hlo.ir import HloModule
from hlomem.machines.releases import NEWEST_LETTER
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import build_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.dump.dump import Dump
    from hlomem.machines.machine import Machine
    from hlomem.pipeline import Stages
    from hlomem.report.data.memory import MemoryView, Space

_TOLERANCE = 0.001
"""The share of its bytes by which a plan may differ and still be said to be XLA's."""


class Subject:
    """A program, its plan, and how to plan variations of it; all is computed when asked for."""

    def __init__(
        self,
        program: HloModule | Callable[[], HloModule],
        memory: MemoryView,
        space: Space,
        plan_module: Callable[[HloModule], Plan],
        *,
        is_rebuilt: bool = False,
        notes: tuple[str, ...] = (),
    ) -> None:
        self._program = program
        self.memory = memory
        self.space = space
        self._plan_module = plan_module
        self.is_rebuilt = is_rebuilt
        """Made of a dump, which does not tell what fusions do inside."""
        self.notes = list(notes)

    @cached_property
    def module(self) -> HloModule:
        """The program."""
        return self._program() if callable(self._program) else self._program

    @property
    def machine(self) -> Machine:
        """The machine it runs on."""
        return self.memory.machine

    @cached_property
    def replay(self) -> Replay:
        """The temporaries of the space over time."""
        return Replay(self.memory, self.space.color)

    @cached_property
    def layers(self) -> Layers | None:
        """The values repeated layers keep for the backward pass; None where there is none."""
        return find_layers(self.memory, self.space.color)

    def reserved(self, varied: HloModule | Stages) -> int:
        """The bytes our plan of a variation reserves in the space."""
        if isinstance(varied, HloModule):
            varied = self._plan_module(varied).stages
        return footprint(varied.assignment.allocations, self.space.color)

    @cached_property
    def stages(self) -> Stages:
        """Our plan of the program as it is."""
        return self._plan_module(self.module).stages

    @cached_property
    def planned_size(self) -> int:
        """The bytes our plan of the program reserves in the space."""
        return self.reserved(self.stages)

    @cached_property
    def is_xlas(self) -> bool:
        """Our plan of the program reserves what XLA's does, but for a thousandth."""
        return abs(self.planned_size - self.space.size) <= _TOLERANCE * self.space.size

    def saved_by(self, varied: HloModule | Stages) -> int:
        """How much less our plan of a variation reserves than our plan of the program."""
        if not self.is_xlas:
            ours, theirs = self.planned_size, self.space.size
            note = f"our plan of it reserves {ours} bytes, XLA's {theirs}: savings may differ"
            if note not in self.notes:
                self.notes.append(note)
        return self.planned_size - self.reserved(varied)


def subject_of_program(
    program: HloModule, backend: str | Machine, chip: str, era: str, space: str | None
) -> Subject:
    """A program that is planned first."""
    base = plan(program, backend=backend, chip=chip, era=era, name=program.name)
    machine = base.stages.options.machine
    memory = build_memory(base.dump, program, machine, is_planned=True)
    planner = _planner(machine, era, None, program.name)
    return Subject(program, memory, find_space(memory, space), planner, notes=base.notes)


def subject_of_dump(
    dump: Dump, module: HloModule | None, machine: Machine | None, space: str | None
) -> Subject:
    """The program of a dump; where its module is not at hand it is rebuilt when a rule needs it."""
    return subject_of_memory(build_memory(dump, module, machine), space)


def subject_of_memory(memory: MemoryView, space: str | None = None) -> Subject:
    """The program of a memory that is looked at already."""
    dump, module, machine = memory.dump, memory.module, memory.machine
    era = NEWEST_LETTER if dump.era.letter == "?" else dump.era.letter
    is_given = machine.preset_color is not None and not memory.is_planned
    planner = _planner(machine, era, dump if is_given else None, dump.name)
    chosen = find_space(memory, space)
    if module is not None and module.is_scheduled:
        return Subject(module, memory, chosen, planner)

    def rebuild() -> HloModule:
        made = replan(dump, backend=machine)
        return made.stages.module

    notes = ("the program was rebuilt from the dump",)
    return Subject(rebuild, memory, chosen, planner, is_rebuilt=True, notes=notes)


def _planner(
    machine: Machine, era: str, preset: Dump | None, name: str
) -> Callable[[HloModule], Plan]:
    def plan_module(module: HloModule) -> Plan:
        return plan(
            module,
            backend=machine,
            era=era,
            preset=preset,
            order="text",
            name=name,
        )

    return plan_module
