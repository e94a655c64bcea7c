"""Bytes that the temporaries of every order need at some moment.

In: a `Flow` whose `inner` are bounds themselves. Out: a lower bound of the heap, however it is
packed. While a node runs, a value is alive in any order if it is made by something the node needs
and read by something that needs the node; what the node makes is alive, too, unless it may be
written over something that it reads. Of these bytes as many may lie in the memory of results as
results do not fill by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.schedule.flow import Flow, FlowValue

MAX_NODES = 4000
"""Computations up to this many nodes are bounded; reachability takes a square of them in bits."""


def lower_bound(flow: Flow) -> int | None:
    """The bound; None where the computation is too large for it."""
    count = len(flow.nodes)
    if count > MAX_NODES:
        return None
    above, below = _reachable(flow.before, range(count)), _reachable(flow.after, range(count)[::-1])
    values = [_Alive.of(value) for value in flow.values]
    lenders = [
        (lender.size, [_Alive.of(value) for value in lender.values]) for lender in flow.lenders
    ]
    bound = 0
    for node in range(count):
        earlier = above[node] | 1 << node
        later = below[node] | 1 << node
        inside = flow.counted_inside.get(node, frozenset())
        buffers = {each.buffer for each in values if each.must_live(node, earlier, later)} - inside
        lent = sum(
            size
            for size, own in lenders
            if not any(each.must_live_around(above[node], below[node]) for each in own)
        )
        size = sum(flow.sizes[buffer] for buffer in buffers) + flow.inner.get(node, 0)
        bound = max(bound, size - _written_over(flow, node) - lent)
    return bound


class _Alive(NamedTuple):
    """A value, with its readers as bits."""

    buffer: int
    made_by: int
    readers: int
    lives_on: bool

    @classmethod
    def of(cls, value: FlowValue) -> _Alive:
        """The value in this form."""
        readers = sum(1 << node for node in value.readers)
        return cls(value.buffer, value.made_by, readers, value.lives_on)

    def must_live(self, node: int, earlier: int, later: int) -> bool:
        """Whether it is alive while a node runs, given what must run before and after it."""
        is_made = self.made_by < 0 or earlier >> self.made_by & 1
        return bool(is_made and (self.lives_on or self.readers & later or self.made_by == node))

    def must_live_around(self, earlier: int, later: int) -> bool:
        """Whether it is alive before a node and after it, so that nothing takes its place there."""
        is_made = self.made_by < 0 or earlier >> self.made_by & 1
        return bool(is_made and (self.lives_on or self.readers & later))


def _written_over(flow: Flow, node: int) -> int:
    """The most bytes a node's results can take over from what it reads."""
    return sum(
        min(
            flow.sizes[flow.values[value].buffer],
            max(flow.sizes[flow.values[each].buffer] for each in candidates),
        )
        for value, candidates in flow.shares.get(node, ())
    )


def _reachable(edges: Sequence[Sequence[int]], order: Iterable[int]) -> list[int]:
    """For every node the set of nodes that edges lead to, as bits."""
    found = [0] * len(edges)
    for node in order:
        bits = 0
        for each in edges[node]:
            bits |= found[each] | 1 << each
        found[node] = bits
    return found
