"""A plan → the text of XLA's files, without records in between.

Creating records of a large plan takes as long as printing them. The text equals that of the records
of `hlomem.write.build`: the format of each line is defined once, next to its reader.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING

from hlomem.dump import assignment, live_range, usage_report
from hlomem.dump.values import Layout, format_part_index, format_position, format_total, format_use
from hlomem.write.build import (
    build_allocation,
    build_peak,
    build_report,
    instruction_texts,
    placed_values,
    values_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlomem.analysis.values import HloValue
    from hlomem.assign.allocation import BufferAllocation
    from hlomem.dump.eras import Era
    from hlomem.dump.file_names import Kind
    from hlomem.pipeline import Stages

_LINES_AT_ONCE = 256


class PlanText:
    """The files XLA writes about a plan."""

    def __init__(self, stages: Stages, era: Era) -> None:
        stages.check_written()
        self._stages = stages
        self._era = era
        self._attributes: dict[tuple[int, bool, bool], str] = {}

    def pieces(self, kind: Kind) -> Iterator[str]:
        lines = chain.from_iterable(self._sections(kind))
        while piece := "".join(islice(lines, _LINES_AT_ONCE)):
            yield piece

    def _sections(self, kind: Kind) -> Iterator[Iterable[str]]:
        if kind in {"combined", "assignment"}:
            yield self._format_assignment()
        if kind in {"combined", "values"}:
            yield self._format_values()
        if kind == "combined":
            yield ["\n\n"]
        if kind in {"combined", "live-range"}:
            yield self._format_live_ranges()
        if kind == "report":
            report = build_report(self._stages, self._era.features)
            assert report is not None
            yield [usage_report.format(report)]

    @cached_property
    def _names(self) -> dict[HloValue, str]:
        color_of, format_name = self._stages.colors, assignment.format_name
        return {
            value: format_name(
                value.id,
                value.instruction.name,
                value.index if value.instruction.shape.is_tuple else None,
                value.is_phi,
                color_of[value],
            )
            for value in placed_values(self._stages.assignment)
        }

    def _format_assignment(self) -> Iterator[str]:
        names, format_value = self._names, assignment.format_assigned_value
        yield assignment.TITLE
        for allocation in self._stages.assignment.allocations:
            attributes = self._format_attributes(allocation)
            yield assignment.format_header(allocation.index, allocation.size, attributes)
            for value in values_in(allocation):
                yield format_value(names[value], allocation.slices[value], value.shape.text)

    def _format_attributes(self, allocation: BufferAllocation) -> str:
        """The rest of an allocation's header, cached except for parameters and results."""
        look = (allocation.color, allocation.is_constant, allocation.is_thread_local)
        is_special = allocation.parameter is not None or allocation.maybe_live_out
        if look in self._attributes and not is_special:
            return self._attributes[look]
        record = build_allocation(self._stages, allocation)
        text = assignment.format_attributes(record, pages=self._era.features.pages is not False)
        if not is_special:
            self._attributes[look] = text
        return text

    def _format_values(self) -> Iterator[str]:
        texts = instruction_texts(self._stages.module, self._era.features)
        layout, finder = Layout(self._era.style), self._stages.dataflow.use_finder
        yield format_total(self._stages.assignment.total_bytes)
        for value, name in self._names.items():
            positions = uses = ""
            for (holder, index), users in zip(value.positions, finder.readers(value), strict=True):
                part = format_part_index(index) if holder.shape.is_tuple else ""
                positions += format_position(holder.name, part)
                for user in users:
                    for number in finder.operand_numbers(user, holder):
                        uses += format_use(user.name, number, part)
            text = texts[value.instruction]
            yield layout.format_value(name, positions, layout.format_uses(uses), text)

    def _format_live_ranges(self) -> Iterator[str]:
        live, features = self._stages.live_ranges, self._era.features
        yield live_range.format_sequence(
            live.end, [instruction.name for instruction in live.sequence]
        )
        format_range = live_range.format_range
        for value, (start, end) in live.range_of.items():
            yield format_range(value.instruction.name, value.index, start, end)
        yield live_range.format_peak(
            build_peak(self._stages, features),
            index=features.peak_index is not False,
            cumulative=features.peak_cumulative is not False,
            stack_trace=features.stack_trace is not False,
        )
