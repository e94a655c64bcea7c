"""Bytes that every order keeps alive at some moment.

In: a `Flow`. Out: a lower bound of its peak. While a node runs, a value is alive in any order if it
is made by something the node needs and read by something that needs the node; what the node makes
is alive, too, unless it may be written over something that it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hlomem.schedule.flow import Flow

MAX_NODES = 4000
"""Computations up to this many nodes are bounded; reachability takes a square of them in bits."""


def lower_bound(flow: Flow) -> int | None:
    """The bound; None where the computation is too large for it."""
    count = len(flow.nodes)
    if count > MAX_NODES:
        return None
    above, below = _reachable(flow.before, range(count)), _reachable(flow.after, range(count)[::-1])
    made = [value.made_by for value in flow.values]
    reads = [sum(1 << node for node in value.readers) for value in flow.values]
    bound = 0
    for node in range(count):
        earlier = above[node] | 1 << node
        later = below[node] | 1 << node
        buffers = {
            value.buffer
            for number, value in enumerate(flow.values)
            if (made[number] < 0 or earlier >> made[number] & 1)
            and (value.lives_on or reads[number] & later or made[number] == node)
        }
        free = _written_over(flow, node)
        inside = flow.counted_inside.get(node, frozenset())
        size = sum(flow.sizes[buffer] for buffer in buffers - inside)
        bound = max(bound, size - free + flow.inner.get(node, 0))
    return bound


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
