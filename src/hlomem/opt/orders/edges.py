"""The edges of a computation; an order is legal if it keeps every one.

They are operands and control predecessors; readers of a value before the next value of its buffer
is written; effects and collectives in their order; and work that hides something asynchronous.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.opcodes import ASYNC_OPCODES
from hlomem.opt.orders.effects import Effects, find_end, is_start, takes_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.pipeline import Stages

AT_START = -1
"""Instead of the node that makes a value: it is there when the computation begins."""


class Place(NamedTuple):
    """A value as one computation sees it."""

    made_by: int
    """The node that makes it, or `AT_START`."""
    touched_by: tuple[int, ...]
    """The other nodes that read it or hand it on, in order; it is needed until the last of them."""
    lives_on: bool
    """Whether it is a part of what the computation returns, and so needed until the end."""
    is_own: bool
    """Whether the computation has to count it: made here, or inside and handed out."""


class Places:
    def __init__(self, stages: Stages) -> None:
        self._callsites = stages.call_graph.callsites
        self._flow = stages.live_ranges.span_of
        self.node_of: dict[HloInstruction, int] = {
            instruction: node
            for computation in self._flow
            for node, instruction in enumerate(stages.schedule.sequence(computation))
        }
        self._in: dict[HloComputation, dict[HloValue, Place]] = {
            computation: {} for computation in self._flow
        }
        find_readers = stages.dataflow.use_finder.readers
        for value in stages.dataflow.values:
            if value.instruction.parent in self._flow:
                readers = [user for users in find_readers(value) for user in users]
                self._add(value, readers)

    def of(self, computation: HloComputation) -> dict[HloValue, Place]:
        return self._in[computation]

    def _add(self, value: HloValue, readers: list[HloInstruction]) -> None:
        positions = [position.instruction for position in value.positions]
        touched: dict[HloComputation, set[int]] = {}
        for instruction in (*positions, *readers):
            for seen in self._with_callers(instruction):
                touched.setdefault(seen.parent, set()).add(self.node_of[seen])
        made = {seen.parent: seen for seen in self._with_callers(value.instruction)}
        appears = {instruction.parent for instruction in positions}
        for computation, nodes in touched.items():
            maker = made.get(computation)
            is_given = maker is None or maker.opcode == "parameter"
            made_by = AT_START if is_given or maker is None else self.node_of[maker]
            self._in[computation][value] = Place(
                made_by,
                tuple(sorted(nodes - {made_by})),
                any(instruction is computation.root for instruction in positions),
                maker is not None and computation in appears,
            )

    def _with_callers(self, instruction: HloInstruction) -> Iterator[HloInstruction]:
        """An instruction that runs, what runs its computation, and so on to the entry."""
        while instruction.parent in self._flow:
            yield instruction
            sites = self._callsites[instruction.parent]
            if not sites or (len(sites) > 1 and sites[0].opcode not in ASYNC_OPCODES):
                return
            instruction = sites[0]


class Edges:
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
        visible = (node for node, one in enumerate(nodes) if self._effects.has(one))
        for earlier, later in pairwise(visible):
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
