"""A program and its BufferAssignmentProto as a `Dump` (`BufferAssignment::FromProto`).

Allocations, offsets, colors and ids are the proto's; positions, uses and live ranges are computed.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hlomem.analysis.values import HloPosition, HloValue
from hlomem.assign.allocation import BufferAllocation, BufferAssignment, EntryParameter, OffsetSize
from hlomem.base.errors import InputError
from hlomem.base.gc_pause import collector_off
from hlomem.base.quantities import ValueId
from hlomem.base.source import visible
from hlomem.dump.dump import Dump, Note
from hlomem.dump.eras import NEWEST
from hlomem.dump.file_names import FILE_NAMES, Kind, author_name
from hlomem.dump.parts import Contents, Part, Wrapping
from hlomem.hlo.schedule import schedule_of
from hlomem.hlo.shape import ShapeIndex
from hlomem.machines.options import Options, options_for
from hlomem.machines.releases import NEWEST_LETTER, find_release
from hlomem.pipeline import Stages
from hlomem.view.guess_machine import guess_for_module
from hlomem.write.build import build_contents

if TYPE_CHECKING:
    from hlomem.assign.colors import ColorOf
    from hlomem.hlo.ir import HloInstruction, HloModule

_KINDS: tuple[Kind, ...] = ("assignment", "values", "live-range", "report")
_NOTES = (
    "read from a proto, which has no uses and no live ranges: computed from its program",
    "a proto does not say which XLA wrote it: shown as the newest writes",
)


def make_dump(module: HloModule, assignment: Any) -> Dump:
    """The dump XLA would have written of a plan next to its proto."""
    schedule = schedule_of(module)
    if schedule is None:
        raise InputError(f"`{visible(module.name)}` has a plan but no schedule, so no live ranges")
    stages = _GivenStages(module, schedule, _options_for(module), given=assignment)
    with collector_off():
        contents = _rounded(build_contents(stages, NEWEST.features))
    parts = [
        Part(
            module.name + FILE_NAMES[kind].suffix,
            kind,
            contents.of_file(kind),
            NEWEST.features,
            Wrapping(),
        )
        for kind in _KINDS
    ]
    notes = tuple([Note(kind="missing", text=text) for text in _NOTES])
    name = author_name(module.name)
    return Dump(name, tuple(parts), (NEWEST,), remarks=notes, open_module=lambda: module)


def _options_for(module: HloModule) -> Options:
    machine = guess_for_module(module, module.name, "").machines[0]
    return options_for(machine, find_release(NEWEST_LETTER, machine.package))


def _rounded(contents: Contents) -> Contents:
    """Percentages with the one decimal that texts have."""
    live = contents.live_ranges
    if live is None or live.peak is None or live.peak.stack_trace is None:
        return contents
    trace = live.peak.stack_trace
    nodes = tuple([replace(node, percent=round(node.percent, 1)) for node in trace.nodes])
    peak = replace(live.peak, stack_trace=replace(trace, nodes=nodes))
    return contents._replace(live_ranges=replace(live, peak=peak))


class _GivenStages(Stages, frozen=True, eq=False, dict=True, kw_only=True):
    """The stages of a plan that XLA made: all but the last two are computed."""

    given: Any

    @cached_property
    def _value_by_id(self) -> dict[int, HloValue]:
        """The values the plan places, which get its ids."""
        finder = _Finder(self.module)
        value_at = {(value.instruction, value.index): value for value in self.dataflow.values}
        found: dict[int, HloValue] = {}
        for buffer in self.given.logical_buffers:
            place = finder.position(buffer.defined_at)
            value = value_at.get(place)
            if value is None or buffer.id in found:
                where = f"{visible(place.instruction.name)}{place.shape_index or ''}"
                problem = "twice" if buffer.id in found else "where the program defines no value"
                raise InputError(f"the plan defines value {buffer.id} {problem}: at `{where}`")
            found[buffer.id] = value
        for number, value in found.items():
            value.id = ValueId(number)
        return found

    @cached_property
    def colors(self) -> ColorOf:
        return {self._value_by_id[buffer.id]: buffer.color for buffer in self.given.logical_buffers}

    @cached_property
    def assignment(self) -> BufferAssignment:
        made = [self._allocation(allocation) for allocation in self.given.buffer_allocations]
        return BufferAssignment(sorted(made, key=lambda allocation: allocation.index))

    def _allocation(self, proto: Any) -> BufferAllocation:
        slices = {}
        for place in proto.assigned:
            value = self._value_by_id.get(place.logical_buffer_id)
            if value is None:
                problem = f"places value {place.logical_buffer_id}, which it does not define"
                raise InputError(f"allocation {proto.index} of the plan {problem}")
            slices[value] = OffsetSize(place.offset, place.size)
        return BufferAllocation(
            proto.index,
            proto.size,
            proto.color,
            slices,
            is_thread_local=proto.is_thread_local,
            is_tuple=proto.is_tuple,
            is_constant=proto.is_constant,
            maybe_live_out=proto.maybe_live_out,
            parameter=self._parameter(proto),
        )

    def _parameter(self, proto: Any) -> EntryParameter | None:
        if not proto.is_entry_computation_parameter:
            return None
        number, index = proto.parameter_number, ShapeIndex(proto.parameter_shape_index)
        parameters = self.module.entry.parameters
        if not 0 <= number < len(parameters) or (
            parameters[number].shape.optional_subshape(index) is None
        ):
            problem = f"holds parameter {number}{index or ''}, which the program has not"
            raise InputError(f"allocation {proto.index} of the plan {problem}")
        return EntryParameter(number, index, proto.is_parameter_aliased_with_output)


class _Finder:
    """Instructions by what a plan calls them; those inside fusions are read if one is missing."""

    def __init__(self, module: HloModule) -> None:
        creation = module.creation
        assert creation is not None, "it was made from a proto"
        self._module = module
        self._numbers = creation.instructions
        self._index()

    def _index(self) -> None:
        self._by_id = {number: found for found, number in self._numbers.items()}
        self._by_name = {found.name: found for found in self._numbers}

    def _find(self, proto: Any) -> HloInstruction | None:
        if proto.instruction_name:
            return self._by_name.get(proto.instruction_name)
        return self._by_id.get(proto.instruction_id)

    def position(self, proto: Any) -> HloPosition:
        found = self._find(proto)
        if found is None:
            self._module.open_all()
            self._index()
            found = self._find(proto)
        if found is None:
            name = visible(str(proto.instruction_name or proto.instruction_id))
            raise InputError(f"the plan speaks of instruction `{name}`, which is not there")
        return HloPosition(found, ShapeIndex(proto.shape_index))
