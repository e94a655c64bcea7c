"""The question: the buffers to assign, and their order.

In: the analyses and the options. Out: the same in one place, with the bytes of every buffer, and
the order in which buffers are looked at. Mirrors the preparations of `BufferAssigner` and the order
of `AssignBuffersForComputations` (`service/buffer_assignment.cc`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.base.quantities import ByteCount, Color, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from hlomem.analysis.aliasing import Aliasing, HloBuffer
    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.live_range import LiveRanges
    from hlomem.assign.colors import ColorOf
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.machines.alias import AliasRules
    from hlomem.machines.options import Options


class Problem(Struct, frozen=True, eq=False):
    """The input of buffer assignment."""

    dataflow: Dataflow
    aliasing: Aliasing
    live_ranges: LiveRanges
    color_of: ColorOf
    options: Options
    alias_rules: AliasRules
    size_of: dict[HloBuffer, ByteCount]

    def color(self, buffer: HloBuffer) -> Color:
        """The memory space of a buffer: that of all its values."""
        return self.color_of[buffer.values[0]]

    def alignment(self, color: Color) -> int:
        """The alignment of offsets in a memory space."""
        return self.options.machine.alignment(color) or 1

    def first_start(self, buffer: HloBuffer) -> Step:
        """The step at which a buffer begins to live; 0 for one without live range."""
        range_of = self.live_ranges.range_of
        return min(range_of[v].start if v in range_of else Step(0) for v in buffer.values)

    def last_end(self, buffer: HloBuffer) -> Step:
        """The last step at which a buffer is alive."""
        return max(self.live_ranges.range_of[value].end for value in buffer.values)

    def in_order(
        self, is_wanted: Callable[[HloComputation], bool], left_out: Collection[HloBuffer]
    ) -> list[HloBuffer]:
        """Buffers of some computations: large, then live-out, then early ones first.

        Where they are merged fast, those that begin to live first come first of all.
        """
        rank_of = self._post_order_positions(is_wanted)
        live_out, size_of = self.aliasing.live_out, self.size_of
        keyed = []
        for buffer in self.aliasing.buffers:
            values = buffer.values
            rank = rank_of.get(values[0].instruction)
            if rank is None or buffer in left_out:
                continue
            start = Step(0)
            if self.options.fast_merge:
                start, rank = self.first_start(buffer), 0
            elif len(values) > 1:
                rank = min(rank_of[value.instruction] for value in values)
            is_inner = buffer not in live_out
            keyed.append((start, -size_of[buffer], is_inner, rank, buffer.id, buffer))
        keyed.sort()
        return [entry[-1] for entry in keyed]

    def _post_order_positions(
        self, is_wanted: Callable[[HloComputation], bool]
    ) -> dict[HloInstruction, int]:
        """Instructions numbered: callers before callees, operands before users.

        `CallGraph::VisitNodes` goes through calls as they stand in XLA's lists, and so does
        `HloModule::Print`: the order of the text is the one that is wanted.
        """
        position: dict[HloInstruction, int] = {}
        for computation in reversed(self.dataflow.module.computations):
            if is_wanted(computation):
                for instruction in self.dataflow.call_graph.post_order(computation):
                    position[instruction] = len(position)
        return position


def state_problem(
    dataflow: Dataflow,
    aliasing: Aliasing,
    live_ranges: LiveRanges,
    color_of: ColorOf,
    options: Options,
) -> Problem:
    """Gather the input of buffer assignment."""
    size_of = _buffer_sizes(aliasing, options)
    rules = options.machine.alias_rules(options)
    return Problem(dataflow, aliasing, live_ranges, color_of, options, rules, size_of)


def _buffer_sizes(aliasing: Aliasing, options: Options) -> dict[HloBuffer, ByteCount]:
    """Bytes of every buffer: those of its largest value."""
    size_of_shape: dict[Shape, ByteCount] = {}
    sizes: dict[HloBuffer, ByteCount] = {}
    for buffer in aliasing.buffers:
        largest = ByteCount(0)
        for value in buffer.values:
            shape = value.shape
            size = size_of_shape.get(shape)
            if size is None:
                size = size_of_shape[shape] = ByteCount(options.machine.size_of(shape))
            if size > largest:
                largest = size
        sizes[buffer] = largest
    return sizes
