"""The input of buffer assignment: the buffers, their sizes, and their order.

Mirrors the preparations of `BufferAssigner` and the order of `AssignBuffersForComputations`
(`service/buffer_assignment.cc`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.analysis.machine_rules import rules_of
from hlomem.assign.allocation import OffsetSize, whole
from hlomem.assign.sharing import Sharing
from hlomem.base.quantities import ByteCount, Color, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from hlomem.analysis.aliasing import Aliasing, HloBuffer
    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.live_range import LiveRanges
    from hlomem.analysis.values import HloValue
    from hlomem.assign.colors import ColorOf
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.machines.options import Options

    Ranked = tuple[int, bool, int, int, HloBuffer]

AS_WRITTEN: Mapping[Shape, Shape] = {}


class Timeless(Struct, frozen=True, eq=False, dict=True):
    """The part of the input that does not depend on the order of instructions."""

    dataflow: Dataflow
    aliasing: Aliasing
    color_of: ColorOf
    options: Options
    size_of: dict[HloBuffer, ByteCount]
    shapes: Mapping[Shape, Shape] = AS_WRITTEN
    """Replacements for shapes of the module."""

    def with_buffers(self, dataflow: Dataflow, aliasing: Aliasing) -> Timeless:
        """The input for the same values in other buffers."""
        made = state_timeless(dataflow, aliasing, self.color_of, self.options, self.shapes)
        self._hand_on(made, ("sharing", "only_color", "flow_positions", "async_updates"))
        return made

    def resized(self, shapes: Mapping[Shape, Shape]) -> Timeless:
        """The input for arrays of other shapes, of which the same ones are equal."""
        made = state_timeless(self.dataflow, self.aliasing, self.color_of, self.options, shapes)
        self._hand_on(made, _SIZELESS)
        return made

    def _hand_on(self, other: Timeless, names: tuple[str, ...]) -> None:
        for name in names:
            other.__dict__[name] = getattr(self, name)

    @cached_property
    def sharing(self) -> Sharing:
        """The results that may overwrite operands."""
        return Sharing(self.dataflow, rules_of(self.options.machine))

    @cached_property
    def only_color(self) -> Color | None:
        """The memory space of all values; None if there are several."""
        colors = set(self.color_of.values())
        return colors.pop() if len(colors) == 1 else None

    @cached_property
    def async_updates(self) -> list[HloInstruction]:
        """The instructions that pass on contexts of asynchronous operations."""
        sets = self.dataflow.value_sets
        return [instruction for instruction in sets if instruction.opcode == "async-update"]

    @cached_property
    def special(self) -> dict[HloBuffer, HloValue]:
        """The buffers that get their own allocation, with the value that causes it."""
        entry = self.dataflow.module.entry
        special: dict[HloBuffer, HloValue] = {}
        for buffer in self.aliasing.buffers:
            tuple_table = None
            for value in buffer.values:
                instruction = value.instruction
                opcode = instruction.opcode
                if opcode == "constant" or (opcode == "parameter" and instruction.parent is entry):
                    special[buffer] = value
                    break
                if tuple_table is None and value.shape.is_tuple:
                    tuple_table = value
            else:
                if tuple_table is not None:
                    special[buffer] = tuple_table
        return special

    @cached_property
    def in_flow(self) -> list[Ranked]:
        """The control-flow buffers with their sort keys, in order."""
        return self._ranked(self.flow_positions)

    @cached_property
    def flow_in_order(self) -> list[HloBuffer]:
        return [ranked[-1] for ranked in self.in_flow]

    @cached_property
    def thread_local(self) -> list[Ranked]:
        """The buffers of embedded computations with their sort keys, in order."""
        return self._ranked(self._post_order_positions(self.dataflow.call_graph.is_thread_local))

    @cached_property
    def thread_local_by_id(self) -> list[HloBuffer]:
        """The buffers of embedded computations, by id."""
        is_thread_local = self.dataflow.call_graph.is_thread_local
        computations = self.dataflow.module.computations
        wanted = {computation for computation in computations if is_thread_local(computation)}
        buffers = self.aliasing.buffers
        return [buffer for buffer in buffers if buffer.values[0].instruction.parent in wanted]

    @cached_property
    def whole_slices(self) -> dict[HloBuffer, dict[HloValue, OffsetSize]]:
        return {
            buffer: dict.fromkeys(buffer.values, whole(self.size_of[buffer]))
            for buffer in self.thread_local_by_id
        }

    @cached_property
    def flow_positions(self) -> dict[HloInstruction, int]:
        return self._post_order_positions(self.dataflow.call_graph.is_in_flow)

    def _ranked(self, rank_of: Mapping[HloInstruction, int]) -> list[Ranked]:
        """Buffers of numbered instructions, by decreasing size, then live-out first, then rank."""
        live_out, size_of = self.aliasing.live_out, self.size_of
        keyed: list[Ranked] = []
        for buffer in self.aliasing.buffers:
            values = buffer.values
            rank = rank_of.get(values[0].instruction)
            if rank is None:
                continue
            if len(values) > 1 and not self.options.fast_merge:
                rank = min(rank_of[value.instruction] for value in values)
            keyed.append((-size_of[buffer], buffer not in live_out, rank, buffer.id, buffer))
        keyed.sort()
        return keyed

    def _post_order_positions(
        self, is_wanted: Callable[[HloComputation], bool]
    ) -> dict[HloInstruction, int]:
        """Instructions, callers before callees (`CallGraph::VisitNodes`), operands first."""
        position: dict[HloInstruction, int] = {}
        for computation in reversed(self.dataflow.module.computations):
            if is_wanted(computation):
                for instruction in self.dataflow.call_graph.post_order(computation):
                    position[instruction] = len(position)
        return position


_SIZELESS = (
    "sharing",
    "only_color",
    "special",
    "flow_positions",
    "thread_local_by_id",
    "async_updates",
)
"""Properties that do not depend on sizes."""


class Problem(Struct, frozen=True, eq=False):
    """The input of buffer assignment for one order of instructions."""

    dataflow: Dataflow
    aliasing: Aliasing
    live_ranges: LiveRanges
    color_of: ColorOf
    options: Options
    size_of: dict[HloBuffer, ByteCount]
    timeless: Timeless

    def color(self, buffer: HloBuffer) -> Color:
        """The memory space of a buffer, which all its values share."""
        return self.color_of[buffer.values[0]]

    def alignment(self, color: Color) -> int:
        return self.options.machine.alignment(color) or 1

    def first_start(self, buffer: HloBuffer) -> Step:
        """The first step of a buffer's live ranges; 0 without a live range."""
        range_of = self.live_ranges.range_of
        return min(range_of[v].start if v in range_of else Step(0) for v in buffer.values)

    def in_order(self, buffers: list[Ranked], left_out: Collection[HloBuffer]) -> list[HloBuffer]:
        """The other buffers in XLA's order; with `fast_merge`, by start of live range."""
        if not self.options.fast_merge:
            return [ranked[-1] for ranked in buffers if ranked[-1] not in left_out]
        keyed = [
            (self.first_start(buffer), size, is_inner, number, buffer)
            for size, is_inner, _, number, buffer in buffers
            if buffer not in left_out
        ]
        keyed.sort()
        return [entry[-1] for entry in keyed]


def with_order(timeless: Timeless, live_ranges: LiveRanges) -> Problem:
    """The input of buffer assignment for one order of instructions."""
    return Problem(
        timeless.dataflow,
        timeless.aliasing,
        live_ranges,
        timeless.color_of,
        timeless.options,
        timeless.size_of,
        timeless,
    )


def state_timeless(
    dataflow: Dataflow,
    aliasing: Aliasing,
    color_of: ColorOf,
    options: Options,
    shapes: Mapping[Shape, Shape] = AS_WRITTEN,
) -> Timeless:
    """The input that no order changes; `shapes` replaces shapes of the module."""
    sizes = _buffer_sizes(aliasing, options, shapes)
    far = options.machine.far_table_color
    if far is not None:
        empty = [buffer for buffer in sizes if color_of[buffer.values[0]] == far]
        sizes.update(dict.fromkeys(empty, ByteCount(0)))
    return Timeless(dataflow, aliasing, color_of, options, sizes, shapes)


def _buffer_sizes(
    aliasing: Aliasing, options: Options, shapes: Mapping[Shape, Shape]
) -> dict[HloBuffer, ByteCount]:
    size_of_shape: dict[Shape, ByteCount] = {}
    sizes: dict[HloBuffer, ByteCount] = {}
    for buffer in aliasing.buffers:
        largest = ByteCount(0)
        for value in buffer.values:
            shape = value.shape
            size = size_of_shape.get(shape)
            if size is None:
                counted = shapes.get(shape, shape)
                size = size_of_shape[shape] = ByteCount(options.machine.size_of(counted))
            if size > largest:
                largest = size
        sizes[buffer] = largest
    return sizes
