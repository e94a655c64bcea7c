"""Good orders of one computation, by the bytes they keep alive, and whether the best is proven.

Several are constructed, the best are moved, small computations are searched whole. Equal flows,
such as those of a program's layers, are searched once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.opt.constants import MAX_PROVEN_NODES, MAX_STARTS
from hlomem.opt.orders.bound import lower_bound
from hlomem.opt.orders.exact import prove
from hlomem.opt.orders.list_schedules import iter_constructions
from hlomem.opt.orders.local_search import MovesLeft, improve_order
from hlomem.opt.orders.model import peak_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from hlomem.opt.goal import OrderWork
    from hlomem.opt.orders.flow import Flow

    Allows = Callable[[Sequence[int]], bool]

_RANKS = 100
"""More than there are constructions."""


class Constructed(NamedTuple):
    """An order of a computation."""

    peak: int
    rank: int
    """Nothing for the given order; of equals the simpler has the lower one."""
    name: str
    order: list[int]


class Searched(NamedTuple):
    """The findings about a computation."""

    candidates: list[Constructed]
    """The best first; of equals the simpler."""
    is_proven: bool


class OrderFinder:
    """Looks for orders of the computations of a program."""

    def __init__(self, limits: OrderWork) -> None:
        self._limits = limits
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
