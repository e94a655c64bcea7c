"""A plan → the text of XLA's files, without the records between.

In: the stages of a plan and the era to write as. Out: the text of a file, in pieces. To make a
record of every value, position and use of a large plan takes as long as to print them all, so
this writes the text directly; where a line is written ten thousand times, without a call for it. It
equals that of the records of `hlomem.write.build`, which `hlomem.dump` prints beside its readers.
"""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from hlomem.analysis.values import HloValue
from hlomem.dump import assignment, live_range, usage_report
from hlomem.dump.grammar import format_index
from hlomem.dump.values import Layout, format_total
from hlomem.write.build import (
    build_allocation,
    build_peak,
    build_report,
    instruction_texts,
    placed_values,
    values_in,
)
from hlomem.write.value_lines import Places, format_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.assign.allocation import BufferAllocation
    from hlomem.dump.eras import Era
    from hlomem.dump.file_names import Kind
    from hlomem.pipeline import Stages

_LINES_AT_ONCE = 256
_VALUES_AT_ONCE = 256


class PlanText:
    """The files XLA writes about a plan."""

    def __init__(self, stages: Stages, era: Era) -> None:
        stages.check_written()
        self._stages = stages
        self._era = era
        self._attributes: dict[tuple[int, bool, bool], str] = {}

    def pieces(self, kind: Kind) -> Iterator[str]:
        """The text of one of the files, in pieces that are cheap to keep."""
        if kind in {"combined", "assignment"}:
            yield from _joined(self._format_assignment())
        if kind in {"combined", "values"}:
            yield from self._format_values()
        if kind == "combined":
            yield "\n\n"
        if kind in {"combined", "live-range"}:
            yield from _joined(self._format_live_ranges())
        if kind == "report":
            report = build_report(self._stages, self._era.features)
            assert report is not None
            yield usage_report.format(report)

    @cached_property
    def _names(self) -> dict[HloValue, str]:
        """The names of the values that have a place, by id."""
        color_of, names = self._stages.colors, dict[HloValue, str]()
        for value in placed_values(self._stages.assignment):
            instruction, color = value.instruction, color_of[value]
            if value.is_phi or instruction.shape.is_tuple:
                index = value.index if instruction.shape.is_tuple else None
                name = assignment.format_name(
                    value.id, instruction.name, index, value.is_phi, color
                )
            else:
                name = f"<{value.id} {instruction.name} @{color}>"
            names[value] = name
        return names

    def _format_assignment(self) -> Iterator[str]:
        names = self._names
        yield assignment.TITLE
        for allocation in self._stages.assignment.allocations:
            head = f"allocation {allocation.index}: size {allocation.size}"
            yield f"{head}{self._format_attributes(allocation)}:\n"
            slices = allocation.slices
            for value in values_in(allocation):
                offset, size = slices[value]
                yield f" value: {names[value]} (size={size},offset={offset}): {value.shape.text}\n"

    def _format_attributes(self, allocation: BufferAllocation) -> str:
        """The rest of an allocation's header, after its number and size.

        Of thousands of allocations, all but those of parameters and results say the same.
        """
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
        places, named = Places(), iter(self._names.items())
        yield format_total(self._stages.assignment.total_bytes)
        while batch := list(islice(named, _VALUES_AT_ONCE)):
            rows = [
                (value, name, finder.readers(value), texts[value.instruction])
                for value, name in batch
            ]
            yield format_values(rows, places, layout, finder.operand_numbers)

    def _format_live_ranges(self) -> Iterator[str]:
        live, features = self._stages.live_ranges, self._era.features
        yield live_range.format_sequence(
            live.end, [instruction.name for instruction in live.sequence]
        )
        for value, (start, end) in live.range_of.items():
            index = format_index(value.index) if value.index else "{}"
            yield f"    {value.instruction.name}{index}:{start}-{end}\n"
        yield live_range.format_peak(
            build_peak(self._stages, features),
            index=features.peak_index is not False,
            cumulative=features.peak_cumulative is not False,
            stack_trace=features.stack_trace is not False,
        )


def _joined(lines: Iterator[str]) -> Iterator[str]:
    """Lines, many in a piece."""
    while piece := "".join(islice(lines, _LINES_AT_ONCE)):
        yield piece
