"""Good orders of one computation, by the bytes they keep alive, and whether the best is proven.

Several are constructed, the best are moved, small computations are searched whole. Equal flows,
such as those of a program's layers, are searched once.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from hlomem.opt.constants import MAX_PROVEN_NODES, MAX_STARTS
from hlomem.opt.orders.bound import lower_bound
from hlomem.opt.orders.exact import prove
from hlomem.opt.orders.local_search import MovesLeft, improve_order
from hlomem.opt.orders.model import peak_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from hlomem.opt.goal import OrderWork
    from hlomem.opt.orders.flow import Flow

    Allows = Callable[[Sequence[int]], bool]


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
    made: dict[tuple[int, ...], list[int]] = {}
    for name, base in {"xla": given, **bases}.items():
        key = tuple(base)  # several are the same, as a rule
        if key not in made:
            made[key] = eager(flow, base)
        yield f"eager, {name}", made[key]


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
    """Sethi and Ullman's numbers: bytes needed to compute each node, as if no work were shared."""
    needs = [0] * len(flow.nodes)
    made = [sum(flow.size(v) for v in values) for values in flow.made_by]
    for node, before in enumerate(flow.before):
        held = need = 0
        for operand in sorted(before, key=lambda operand: made[operand] - needs[operand]):
            need = max(need, held + needs[operand])
            held += made[operand]
        needs[node] = max(need, held + made[node] + flow.inner.get(node, 0))
    return needs


_RANKS = 100
"""More than there are constructions."""


class Constructed(NamedTuple):
    peak: int
    rank: int
    """Nothing for the given order; of equals the simpler has the lower one."""
    name: str
    order: list[int]


class Searched(NamedTuple):
    candidates: list[Constructed]
    """The best first; of equals the simpler."""
    is_proven: bool


class OrderFinder:
    """Looks for orders of the computations of a program."""

    def __init__(self, limits: OrderWork, *, is_told: bool = True) -> None:
        """Bounds are computed only where they are told, or where orders are found by them."""
        self._limits = limits
        self._is_bounded = is_told or limits.moves_per_node > 0 or limits.steps_per_node > 0
        self._budget = MovesLeft(limits.moved_nodes)
        self._known: dict[Hashable, Searched] = {}

    def find(self, flow: Flow, others: Mapping[str, list[int]], allows: Allows | None) -> Searched:
        """Orders of a computation that `allows` lets pass; `others` are known to be some."""
        if allows is not None:  # equal flows may take other times
            return self._search(flow, others, allows, proves=False)
        key = _key(flow)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._search(flow, others, lambda _: True, proves=True)
        return known

    def move(self, flow: Flow, order: list[int]) -> list[int]:
        """An order that keeps no more alive, found with less work."""
        return improve_order(flow, order, self._share(flow, 4 * MAX_STARTS))[-1]

    def _share(self, flow: Flow, count: int) -> MovesLeft:
        return self._budget.share(self._limits.moves_per_node * len(flow.nodes) // count)

    def _search(
        self, flow: Flow, others: Mapping[str, list[int]], allows: Allows, *, proves: bool
    ) -> Searched:
        made = construct(flow, others, allows)
        if not self._is_bounded:
            return Searched(made, is_proven=False)
        floor = lower_bound(flow, may_borrow=False) or 0
        is_proven = made[0].peak <= floor
        if not is_proven and proves:
            is_proven = self._prove(flow, made, floor)
        if is_proven:
            return Searched(made, is_proven)
        by_peak = {candidate.peak: candidate for candidate in reversed(made)}
        for start in sorted(by_peak.values())[:MAX_STARTS]:
            share = self._share(flow, MAX_STARTS)
            for order in reversed(improve_order(flow, start.order, share, floor)):
                if order != start.order and allows(order):
                    peak = peak_of(flow, order)
                    made.append(
                        Constructed(peak, len(made) + _RANKS, f"{start.name}, moved", order)
                    )
        made.sort(key=lambda candidate: candidate[:2])
        return Searched(made, made[0].peak <= floor)

    def _prove(self, flow: Flow, made: list[Constructed], floor: int) -> bool:
        """Look through all orders of a small computation; whether the best is proven to be so."""
        best = made[0]
        if len(flow.nodes) > MAX_PROVEN_NODES or not self._limits.steps_per_node:
            return False
        steps = self._limits.steps_per_node * len(flow.nodes)
        proof = prove(flow, best.order, floor, steps)
        if proof.peak < best.peak:
            made.insert(0, Constructed(proof.peak, _RANKS, "branch and bound", proof.order))
        return proof.is_proven


def construct(flow: Flow, others: Mapping[str, list[int]], allows: Allows) -> list[Constructed]:
    """The orders made in one go, the best first; the given one is among them."""
    made = []
    seen: set[tuple[int, ...]] = set()
    for rank, (name, order) in enumerate(iter_constructions(flow, others)):
        if tuple(order) not in seen and (not rank or allows(order)):
            seen.add(tuple(order))
            made.append(Constructed(peak_of(flow, order), rank, name, order))
    made.sort(key=lambda candidate: candidate[:2])
    return made


def _key(flow: Flow) -> Hashable:
    """A key that two flows share if one's orders are as good for the other."""
    return (
        tuple(map(tuple, flow.before)),
        tuple(flow.sizes),
        tuple(flow.values),
        tuple((node, tuple(shared)) for node, shared in flow.shares.items()),
        tuple(flow.inner.items()),
        tuple(flow.counted_inside.items()),
        flow.nodes.index(flow.computation.root),
    )
