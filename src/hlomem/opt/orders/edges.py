"""The edges of a computation; an order is legal if it keeps every one.

They are operands and control predecessors; readers of a value before the next value of its buffer
is written; effects and collectives in their order; and work that hides something asynchronous.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

from hlomem.opt.orders.effects import Effects, find_end, is_start, takes_time
from hlomem.opt.orders.places import AT_START, Place, Places

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.pipeline import Stages


class Edges:
    """The edges of a module's computations."""

    def __init__(
        self,
        stages: Stages,
        places: Places,
        *,
        may_reorder_collectives: bool = False,
        keeps_overlap: bool = True,
    ) -> None:
        self._stages = stages
        self._places = places
        self._effects = Effects(stages.call_graph, may_reorder_collectives=may_reorder_collectives)
        self._keeps_overlap = keeps_overlap

    def before(self, computation: HloComputation) -> list[list[int]]:
        """The nodes that each node must come after, without duplicates."""
        nodes = self._stages.schedule.sequence(computation)
        node_of = self._places.node_of
        before: list[set[int]] = [set() for _ in nodes]
        for node, instruction in enumerate(nodes):
            needed = (*instruction.operands, *instruction.control_predecessors)
            before[node].update([node_of[earlier] for earlier in needed])
        for earlier, later in self._rewrites(computation):
            before[later].add(earlier)
        for earlier, later in self._visible(nodes):
            before[later].add(earlier)
        if self._keeps_overlap:
            for earlier, later in self._hidden(nodes):
                before[later].add(earlier)
        return [sorted(needed) for needed in before]

    def _rewrites(self, computation: HloComputation) -> Iterable[tuple[int, int]]:
        """A buffer's next value is written after all have read the one before."""
        in_buffer: dict[HloBuffer, list[Place]] = {}
        for value, place in self._places.of(computation).items():
            in_buffer.setdefault(self._stages.aliasing.buffer_of[value], []).append(place)
        for places in in_buffer.values():
            if len(places) > 1:
                yield from _in_turn(places)

    def _visible(self, nodes: Sequence[HloInstruction]) -> Iterable[tuple[int, int]]:
        """Edges that keep visible effects in their order."""
        return pairwise(
            node for node, instruction in enumerate(nodes) if self._effects.has(instruction)
        )

    def _hidden(self, nodes: Sequence[HloInstruction]) -> Iterable[tuple[int, int]]:
        """Edges that keep work between the start and the end of what runs in the background."""
        for node, instruction in enumerate(nodes):
            end = find_end(instruction) if is_start(instruction) else None
            if end is None:
                continue
            done = self._places.node_of[end]
            for other in range(node + 1, done):
                if takes_time(nodes[other]):
                    yield node, other
                    yield other, done


def _in_turn(places: Sequence[Place]) -> Iterable[tuple[int, int]]:
    """Everyone who makes or reads a value of one buffer comes before the next that is written."""
    written = sorted({place.made_by for place in places} - {AT_START})
    if not written:
        return
    for place in places:
        for node in (place.made_by, *place.touched_by):
            following = bisect_right(written, node)
            if node != AT_START and following < len(written):
                yield node, written[following]
