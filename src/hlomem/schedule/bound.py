"""Bytes that the temporaries of every order need at some moment.

In: a `Flow` whose `inner` are bounds themselves. Out: a lower bound of the heap, however it is
packed. While a node runs, a value is alive in any order if it is made by something the node needs
and read by something that needs the node; what the node makes is alive, too, unless it may be
written over something that it reads. Of these bytes as many may lie in the memory of results as
results do not fill by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hlomem.schedule.flow import Flow, FlowValue

MAX_NODES = 12_000
"""Computations up to this many nodes are bounded; reachability takes a square of them in bits."""


def lower_bound(flow: Flow, *, may_borrow: bool = True) -> int | None:
    """The bound; None where the computation is too large for it.

    Without `may_borrow` it is one of the peak of `model.py`, which knows nothing of lenders.
    """
    count = len(flow.nodes)
    if count > MAX_NODES:
        return None
    reach = _Reach(flow)
    sizes = [flow.inner.get(node, 0) - _written_over(flow, node) for node in range(count)]
    inside_at: dict[int, int] = {}
    for node, buffers in flow.counted_inside.items():
        for buffer in buffers:
            inside_at[buffer] = inside_at.get(buffer, 0) | 1 << node
    alive_at: dict[int, int] = {}
    for value in flow.values:
        alive_at[value.buffer] = alive_at.get(value.buffer, 0) | reach.alive_at(value)
    for buffer, nodes in alive_at.items():
        for node in _members(nodes & ~inside_at.get(buffer, 0)):
            sizes[node] += flow.sizes[buffer]
    for lender in flow.lenders if may_borrow else ():
        filled = 0
        for value in lender.values:
            filled |= reach.alive_around(value)
        for node in _members(reach.all & ~filled):
            sizes[node] -= lender.size
    return max(0, *sizes) if sizes else 0


class _Reach:
    """The nodes that must run before and after each node, as bits."""

    def __init__(self, flow: Flow) -> None:
        count = len(flow.nodes)
        self.all = (1 << count) - 1
        self._above = _reachable(flow.before, range(count))
        self._below = _reachable(flow.after, range(count)[::-1])

    def alive_at(self, value: FlowValue) -> int:
        """The nodes while which a value is alive in any order, those that make and read it too."""
        maker = 1 << value.made_by if value.made_by >= 0 else 0
        made = self._below[value.made_by] | maker if maker else self.all
        needed = self.all if value.lives_on else 0
        for reader in value.readers:
            needed |= self._above[reader] | 1 << reader
        return made & needed | maker

    def alive_around(self, value: FlowValue) -> int:
        """The nodes before and after which it is alive, so that nothing takes its place there."""
        made = self._below[value.made_by] if value.made_by >= 0 else self.all
        needed = self.all if value.lives_on else 0
        for reader in value.readers:
            needed |= self._above[reader]
        return made & needed


def _members(nodes: int) -> Iterator[int]:
    """The nodes of a set, from the last."""
    bits = f"{nodes:b}"
    last = len(bits) - 1
    place = bits.find("1")
    while place >= 0:
        yield last - place
        place = bits.find("1", place + 1)


def _written_over(flow: Flow, node: int) -> int:
    """The most bytes a node's results can take over from what it reads."""
    return sum(
        min(
            flow.sizes[flow.values[value].buffer],
            max(flow.sizes[flow.values[candidate].buffer] for candidate in candidates),
        )
        for value, candidates in flow.shares.get(node, ())
    )


def _reachable(edges: Sequence[Sequence[int]], order: Iterable[int]) -> list[int]:
    """For every node the set of nodes that edges lead to, as bits."""
    found = [0] * len(edges)
    for node in order:
        bits = 0
        for other in edges[node]:
            bits |= found[other] | 1 << other
        found[node] = bits
    return found
