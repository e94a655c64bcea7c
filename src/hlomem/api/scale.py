"""`hlomem.scale`: plans a program at any size, from two compiles.

    grown = hlomem.scale("batch32.hlo", "batch64.hlo", sizes=(32, 64))
    grown.bytes_at(48), grown.largest(16 << 30)

They tell how every dimension grows (`hlomem.hlo.scaling`); the plan of one is reused with other
sizes (`Stages.resized`), or made again if more would change. Nothing is compiled: a compiler may
produce a different program at a third size.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from hlomem import hlo
from hlomem.api.fit_search import Planned, Straddle, next_value, straddle
from hlomem.api.opening import OpenedSubject, Subject, open_subject
from hlomem.api.plan import plan
from hlomem.assign.footprint import footprint, main_space
from hlomem.base.errors import CommandError, InputError
from hlomem.base.gc_pause import collector_off
from hlomem.hlo.scaling import Growth
from hlomem.pipeline import Stages, start_stages
from hlomem.report.data.scaling import ScaleReport, SizedPlan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlomem.dump.dump import Dump
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.capacity import Capacity
    from hlomem.machines.machine import Machine

MAX_PLANS = 64


def scale(
    one: Subject,
    other: Subject,
    *,
    sizes: tuple[int, int],
    backend: str | Machine = "",
    chip: str = "",
    era: str = "",
) -> ScaledProgram:
    """A program at any size, from two compiles of it that differ only in a size.

    Both are inputs as for `hlomem.explain`: dumps with their programs, HLO texts, modules, compiled
    programs. `sizes` are theirs, of the batch or another dimension. Machine and era are as for
    `hlomem.plan`. If the two are not the same program, the error shows the first differing line.
    """
    opened, second = open_subject(one), open_subject(other)
    growth = Growth(_program_of(opened), _program_of(second), sizes)
    made = plan(
        growth.one,
        backend=backend or opened.machine or "",
        chip=chip,
        era=era,
        like=None if era or opened.is_planned else opened.dump,
        order="text",
    )
    grown = ScaledProgram(made.stages, growth, made.notes)
    for size, subject in zip(sizes, (opened, second), strict=True):
        if subject.dump is not None:
            grown.compare(size, subject.dump)
    return grown


def _program_of(opened: OpenedSubject) -> HloModule:
    if opened.program is None:
        assert opened.dump is not None
        raise InputError(
            f"{opened.dump.title}: no HLO text next to this dump, so no shapes to scale"
        )
    if not opened.program.is_scheduled:
        problem = "a module without a schedule, which would depend on sizes"
        raise InputError(f"{opened.program.source_name}: {problem}; give it as it was compiled")
    return opened.program


class ScaledProgram:
    """A program at any size, with cached plans; `stages` are of the first compile."""

    def __init__(self, stages: Stages, growth: Growth, notes: tuple[str, ...] = ()) -> None:
        self.sizes = growth.sizes
        self.notes = notes
        self._growth = growth
        self._stages = stages
        self._plans: dict[int, SizedPlan] = {}

    def compare(self, size: int, dump: Dump) -> None:
        """Add a note if the plan at a size differs from XLA's own."""
        records = () if dump.assignment is None else dump.assignment.allocations
        written = footprint(records, main_space(records))
        if records and written != (planned := self.bytes_at(size)):
            note = f"XLA's own plan at {size} takes {written} bytes, hlomem's {planned}"
            self.notes = (*self.notes, f"{note}: other sizes may be off as well")

    @property
    def machine(self) -> Machine:
        return self._stages.options.machine

    def at(self, size: int) -> Stages:
        """The stages of the plan at a size; `GrowthError` if its shapes are unknown."""
        if size < 1:
            raise CommandError(f"a size is 1 or more, not {size}")
        if size == self.sizes[0]:
            return self._stages
        return self._resized(size) or self._planned(size)

    def _resized(self, size: int) -> Stages | None:
        """A plan that differs from a known one only in sizes; None if there is none."""
        shapes = self._growth.shapes_at(size)
        if shapes is not None and not self._stages.why_not_resized(shapes):
            return self._stages.resized(shapes)
        shapes = self._growth.shapes_at(size, of_other=True)
        if shapes is not None and not self._stages_of_other.why_not_resized(shapes):
            return self._stages_of_other.resized(shapes)
        return None

    @cached_property
    def _stages_of_other(self) -> Stages:
        return self._like(self._growth.other)

    def _planned(self, size: int) -> Stages:
        name = f"<{self._stages.module.name} at {size}>"
        return self._like(hlo.parse(self._growth.text_at(size), name))

    def _like(self, module: HloModule) -> Stages:
        known = self._stages
        return start_stages(module, known.options, pack=known.pack, order_lists=known.order_lists)

    def bytes_at(self, size: int) -> int:
        """The bytes that must fit at a size, as `hlomem summary` counts them."""
        return self._sized(size).size

    def report(
        self, sizes: Iterable[int] = (), capacity: Capacity | None = None, step: int = 1
    ) -> ScaleReport:
        """The plans at both given sizes and at others, and the largest that fits."""
        found = None if capacity is None else self.largest(capacity.size, step)
        wanted = {*self.sizes, *sizes}
        if found is not None:
            wanted |= {found.largest, found.refused or 0} - {0}
        return ScaleReport(
            program=self._stages.module.name,
            machine=self.machine.name,
            sizes=self.sizes,
            plans=tuple([self._sized(size) for size in sorted(wanted)]),
            step=step,
            capacity=capacity,
            largest=None if found is None else found.largest,
            smallest_refused=None if found is None else found.refused,
            notes=self.notes,
        )

    def _sized(self, size: int) -> SizedPlan:
        known = self._plans.get(size)
        if known is None:
            with collector_off():
                allocations = self.at(size).assignment.allocations
            space = main_space(allocations)
            known = self._plans[size] = SizedPlan(
                value=size,
                size=footprint(allocations, space),
                temporaries=footprint(
                    [held for held in allocations if held.is_preallocated_temp], space
                ),
                is_given=size in self.sizes,
            )
        return known

    def largest(self, limit: int, step: int = 1) -> Straddle:
        """The largest multiple of `step` whose plan fits `limit`, and the next, which does not.

        0 and None if not found. Needs that do not grow monotonically may have other solutions.
        """
        start = max(max(self.sizes) // step, 1) * step
        seen: dict[int, Planned] = {}
        while len(seen) < MAX_PLANS:
            value = next_value(seen, limit, step, start)
            if value is None:
                break
            size = self.bytes_at(value)
            seen[value] = Planned(size, size <= limit)
        return straddle(seen)
