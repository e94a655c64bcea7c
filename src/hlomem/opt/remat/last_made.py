"""The bytes that must be there when the last of a node's operands is made.

All operands of a node are there when it runs, so one of them is made last, while the others wait.
Whichever it is, what makes it has its own operands then, in addition to those that wait, and one of
all these was made last in turn. The least over all choices is a number of bytes that no order and
no recomputation goes below.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import RUN_IN_PLACE
from hlomem.opt.orders.effects import takes_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.opt.orders.flow import Flow, FlowValue

_DEPTH = 3
"""Operands that are made one before another."""
_MAX_WAITING = 8
"""Values that one of is made last; of more nothing is said."""


class LastMade:
    """The values of a computation, and what has to be there to make them."""

    def __init__(self, flow: Flow, stacks: AbstractSet[HloBuffer]) -> None:
        self._flow = flow
        self._sizes = [
            0 if buffer in stacks else size
            for buffer, size in zip(flow.buffers, flow.sizes, strict=True)
        ]
        self._standing = frozenset(_find_standing(flow))
        self._standing_bytes = sum(self._sizes[buffer] for buffer in self._standing)
        self._known: dict[tuple[frozenset[int], int], int] = {}
        self._read_by: dict[int, frozenset[int]] = {}

    def least(self, node: int) -> int:
        """Bytes that are there at some moment, if a node runs."""
        return self._least(self._read(node), _DEPTH) if self._is_plain(node) else 0

    def _least(self, waiting: frozenset[int], depth: int) -> int:
        """The same, if all of some values are there at one moment."""
        known = self._known.get((waiting, depth))
        if known is None:
            known = self._known[waiting, depth] = self._find_least(waiting, depth)
        return known

    def _find_least(self, waiting: frozenset[int], depth: int) -> int:
        total = self._bytes(waiting)
        if not depth or len(waiting) > _MAX_WAITING:
            return total
        makers = {self._flow.values[value].made_by for value in waiting} - {-1}
        if not makers or not all(map(self._is_plain, makers)):
            return total
        best: int | None = None
        for maker in makers:
            made = self._flow.made_by[maker]
            others = waiting.difference(made)
            there = others | self._read(maker)
            size = self._bytes(there.union(made)) - self._shared(maker, others)
            if best is None or size < best:  # else it needs no less, whatever comes before
                size = max(size, self._least(there, depth - 1))
                best = size if best is None else min(size, best)
            if best <= total:
                return total
        return total if best is None else best

    def _is_plain(self, node: int) -> bool:
        """Whether a node reads its operands whole, and calls nothing that counts by itself."""
        instruction = self._flow.nodes[node]
        return takes_time(instruction) and instruction.opcode not in RUN_IN_PLACE

    def _read(self, node: int) -> frozenset[int]:
        known = self._read_by.get(node)
        if known is None:
            flow = self._flow
            read = [one for one in flow.read_by[node] if self._sizes[flow.values[one].buffer]]
            known = self._read_by[node] = frozenset(read)
        return known

    def _bytes(self, values: Iterable[int]) -> int:
        """Bytes of the buffers of some values, and of those that are there all the time."""
        flow_values, sizes = self._flow.values, self._sizes
        there = {flow_values[value].buffer for value in values} - self._standing
        return self._standing_bytes + sum([sizes[buffer] for buffer in there])

    def _shared(self, node: int, waiting: AbstractSet[int]) -> int:
        """The most bytes of a node's results that are written over what waits no longer."""
        flow, shared = self._flow, 0
        for value, over in flow.shares.get(node, ()):
            free = [flow.size(one) for one in over if one not in waiting]
            shared += min(flow.size(value), max(free, default=0))
        return shared


def _find_standing(flow: Flow) -> Iterator[int]:
    """The buffers with something in them from begin to end, each value written over the last."""
    values_in: dict[int, list[FlowValue]] = {}
    for value in flow.values:
        values_in.setdefault(value.buffer, []).append(value)
    for buffer, values in values_in.items():
        values.sort(key=lambda value: value.made_by)
        if len(values) < 2 or values[0].made_by >= 0 or not values[-1].lives_on:
            continue
        if all(later.made_by in earlier.readers for earlier, later in pairwise(values)):
            yield buffer
