"""Orders made in one go, by greedy rules with ties broken by XLA's order."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hlomem.opt.orders.flow import Flow


def iter_constructions(
    flow: Flow, others: Mapping[str, list[int]] = MappingProxyType({})
) -> Iterator[tuple[str, list[int]]]:
    """Every construction, XLA's own order first; `others` are built upon, too."""
    given = list(range(len(flow.nodes)))
    yield "xla", given
    bases = {
        "deep, large first": depth_first(flow, _subtree_needs(flow)),
        "deep, small first": depth_first(flow, [-need for need in _subtree_needs(flow)]),
        "deep, as written": depth_first(flow, [0] * len(given)),
        "list": list_forward(flow),
        "list backwards": list_backward(flow),
        **others,
    }
    yield from bases.items()
    for name, base in {"xla": given, **bases}.items():
        yield f"eager, {name}", eager(flow, base)


class _Progress:
    """The state of a forward construction: nodes that are ready, and what running one frees."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._waits = [len(needed) for needed in flow.before]
        self._unread = [len(value.readers) + value.lives_on for value in flow.values]
        self.has_run = [False] * len(flow.nodes)
        self._net = [sum(flow.size(value) for value in made) for made in flow.made_by]
        for value, unread in enumerate(self._unread):
            if unread == 1 and flow.values[value].readers:
                self._net[flow.values[value].readers[0]] -= self._flow.size(value)

    @property
    def ready(self) -> list[int]:
        """The nodes that may run first."""
        return [node for node, waits in enumerate(self._waits) if not waits]

    def net(self, node: int) -> int:
        """Bytes more that are alive after a node has run than before."""
        return self._net[node]

    def run(self, node: int) -> tuple[list[int], list[int]]:
        """Run a node: those that are ready now, and those that would free more than before."""
        self.has_run[node] = True
        cheaper = []
        for value in self._flow.read_by[node]:
            self._unread[value] -= 1
            if self._unread[value] == 1 and not self._flow.values[value].lives_on:
                last = next(n for n in self._flow.values[value].readers if not self.has_run[n])
                self._net[last] -= self._flow.size(value)
                cheaper.append(last)
        for follower in self._flow.after[node]:
            self._waits[follower] -= 1
        freed = [follower for follower in self._flow.after[node] if not self._waits[follower]]
        return freed, [reader for reader in cheaper if not self._waits[reader]]


def list_forward(flow: Flow) -> list[int]:
    """Always the ready node that frees most beyond what it makes."""
    progress = _Progress(flow)
    heap = [(progress.net(node), node) for node in progress.ready]
    heapify(heap)
    order: list[int] = []
    while heap:
        net, node = heappop(heap)
        if progress.has_run[node] or net != progress.net(node):
            continue
        order.append(node)
        freed, cheaper = progress.run(node)
        for follower in (*freed, *cheaper):
            heappush(heap, (progress.net(follower), follower))
    return order


def eager(flow: Flow, base: Sequence[int]) -> list[int]:
    """Run at once whatever is ready and leaves no more alive than before, else follow `base`."""
    progress = _Progress(flow)
    rank = {node: place for place, node in enumerate(base)}
    free = [(rank[node], node) for node in progress.ready if progress.net(node) <= 0]
    heapify(free)
    order: list[int] = []
    following = iter(base)
    while len(order) < len(base):
        node = heappop(free)[1] if free else next(following)
        if progress.has_run[node]:
            continue
        order.append(node)
        freed, cheaper = progress.run(node)
        for follower in (*freed, *cheaper):
            if progress.net(follower) <= 0:
                heappush(free, (rank[follower], follower))
    return order


def list_backward(flow: Flow) -> list[int]:
    """From the end: always the node that leaves least alive before it."""
    waits = [len(followers) for followers in flow.after]
    is_needed = [value.lives_on for value in flow.values]
    heap: list[tuple[int, int]] = []

    def cost(node: int) -> int:
        """Bytes more alive before a node than after it."""
        made = sum(flow.size(value) for value in flow.made_by[node] if is_needed[value])
        read = sum(flow.size(value) for value in flow.read_by[node] if not is_needed[value])
        return read - made

    for node, count in enumerate(waits):
        if not count:
            heappush(heap, (cost(node), -node))
    order: list[int] = []
    done = [False] * len(flow.nodes)
    while heap:
        old, negative = heappop(heap)
        node = -negative
        if done[node]:
            continue
        now = cost(node)
        if now != old:
            heappush(heap, (now, negative))
            continue
        done[node] = True
        order.append(node)
        for value in flow.read_by[node]:
            is_needed[value] = True
        for earlier in flow.before[node]:
            waits[earlier] -= 1
            if not waits[earlier]:
                heappush(heap, (cost(earlier), -earlier))
    order.reverse()
    return order


def depth_first(flow: Flow, weight: Sequence[int]) -> list[int]:
    """Operands before users, those of the largest weight first; the result's cone comes first."""
    order: list[int] = []
    seen = [False] * len(flow.nodes)
    roots = [number for number, node in enumerate(flow.nodes) if node is flow.computation.root]
    for start in (*roots, *range(len(flow.nodes))):
        if seen[start]:
            continue
        stack = [(start, iter(_by_weight(flow.before[start], weight)))]
        seen[start] = True
        while stack:
            node, pending = stack[-1]
            for needed in pending:
                if not seen[needed]:
                    seen[needed] = True
                    stack.append((needed, iter(_by_weight(flow.before[needed], weight))))
                    break
            else:
                order.append(node)
                stack.pop()
    return order


def _by_weight(nodes: Sequence[int], weight: Sequence[int]) -> list[int]:
    return sorted(nodes, key=lambda node: (-weight[node], node))


def _subtree_needs(flow: Flow) -> list[int]:
    """Sethi and Ullman's numbers: bytes needed to compute each node, as if nobody shared work."""
    needs = [0] * len(flow.nodes)
    made = [sum(flow.size(v) for v in values) for values in flow.made_by]
    for node, before in enumerate(flow.before):
        held = need = 0
        for operand in sorted(before, key=lambda operand: made[operand] - needs[operand]):
            need = max(need, held + needs[operand])
            held += made[operand]
        needs[node] = max(need, held + made[node] + flow.inner.get(node, 0))
    return needs
