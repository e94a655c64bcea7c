"""The nodes of each computation at which a value is made, read and passed on.

A node is the index of an instruction in XLA's order of its computation. What happens in a callee
happens at the caller's instruction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.opcodes import ASYNC_OPCODES

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """The places of all values of a module, by computation."""

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
        """The values that are seen in a computation, by id."""
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
