"""`hlomem.advise`: changes that would reduce a program's memory, and the page with them.

The rules are in `hlomem.advice`, which gets the planner from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.api.opening import Subject, open_memory
from hlomem.api.plan import plan
from hlomem.machines.releases import NEWEST_LETTER
from hlomem.report.data.lookup import find_space
from hlomem.report.page.page import Page, build_page, is_quick

if TYPE_CHECKING:
    from hlomem.advice.case import Case
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.capacity import Capacity
    from hlomem.machines.machine import Machine
    from hlomem.pipeline import Stages
    from hlomem.report.data.advice import AdviceReport
    from hlomem.report.data.memory import MemoryView


def advise(
    subject: Subject,
    *,
    module: str | HloModule | None = None,
    backend: str | Machine = "",
    chip: str = "",
    era: str = "",
    space: str | None = None,
) -> AdviceReport:
    """Changes that would save memory in a program, or in the program of a dump.

    `module` chooses a program of a folder by name, or is the program of a dump without HLO text
    next to it. `backend` and `chip` are inferred by default.
    """
    memory = open_memory(
        subject,
        module=module if isinstance(module, str) else None,
        program=None if isinstance(module, str) else module,
        backend=backend,
        chip=chip,
        era=era,
    )
    return advise_on(memory, space=space, era=era)


def advise_on(memory: MemoryView, *, space: str | None = None, era: str = "") -> AdviceReport:
    """Advice for the program of a `MemoryView`, planned as `era`."""
    from hlomem.advice.advising import RULES, advise_with  # noqa: PLC0415 - imports the planner

    return advise_with(RULES, case_of(memory, space=space, era=era))


def case_of(memory: MemoryView, *, space: str | None = None, era: str = "") -> Case:
    """The program of a memory, rebuilt on demand, and how variations of it are planned."""
    from hlomem.advice.case import Case  # noqa: PLC0415 - as above

    dump, module, machine = memory.dump, memory.module, memory.machine
    era = era or (NEWEST_LETTER if dump.era.letter == "?" else dump.era.letter)
    preset = None if memory.is_planned or machine.preset_color is None else dump

    def plan_module(varied: HloModule) -> Stages:
        made = plan(varied, backend=machine, era=era, preset=preset, order="text", name=dump.name)
        return made.stages

    def rebuild() -> HloModule:
        from hlomem.api.replan import replan  # noqa: PLC0415 - few need it

        return replan(dump, backend=machine).stages.module

    chosen = find_space(memory, space)
    if module is not None and (module.is_scheduled or memory.is_planned):
        return Case(module, memory, chosen, plan_module, notes=memory.notes)
    notes = (*memory.notes, "the program was rebuilt from the dump")
    return Case(rebuild, memory, chosen, plan_module, is_rebuilt=True, notes=notes)


def build_advised_page(memory: MemoryView, capacity: Capacity | None = None) -> Page:
    """The data of a page, with advice unless the program is too large."""
    return build_page(memory, capacity, advise_on(memory) if is_quick(memory) else None)
