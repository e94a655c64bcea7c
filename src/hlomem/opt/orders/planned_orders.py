"""The order of a program whose plan is the smallest, among orders that promise to be.

Candidates are planned as XLA plans them. What is seen to lie in borrowed memory is then left out of
the model, and orders are searched again; the plans that are left are spent on `local_search.climb`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from hlomem.assign.footprint import footprint
from hlomem.base.quantities import MAIN_MEMORY
from hlomem.hlo.schedule import Schedule
from hlomem.opt.constants import (
    MAX_BORROWING,
    MAX_BORROWING_ROUNDS,
    MAX_CLIMBED,
    MAX_CONSTRUCTED,
    MIN_FINALISTS,
)
from hlomem.opt.orders.local_search import Planned, climb
from hlomem.opt.orders.one_computation import Constructed, OrderFinder, construct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hlomem.assign.allocation import BufferAllocation
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.opt.orders.flow import Flow
    from hlomem.opt.orders.search import Orders
    from hlomem.pipeline import Stages


class Trial(NamedTuple):
    name: str
    order: list[int]
    planned: Planned

    @property
    def cost(self) -> int:
        """Bytes of temporaries."""
        return self.planned.cost


class Best(NamedTuple):
    """The cheapest plan so far, and how the entry's order was made."""

    cost: int
    name: str


class OrderPlanner:
    """Plans a program in other orders, and keeps the best."""

    def __init__(
        self,
        stages: Stages,
        flows: Sequence[Flow],
        chosen: dict[HloComputation, list[int]],
        plans: int,
        is_enough: Callable[[int], bool],
    ) -> None:
        """`plans` may be made; a plan of bytes that are enough ends the search."""
        self._stages = stages
        self._flows = flows
        self._entry = flows[-1]
        self.chosen = chosen
        self._plans = max(plans, MIN_FINALISTS)
        self._is_enough = is_enough
        self._known: dict[tuple[object, ...], Planned] = {}
        """By what was chosen; orders are met again."""

    def choose(self, candidates: Sequence[Constructed]) -> list[Trial]:
        """Plan the most promising orders of the entry, and the given one; the best first."""
        count = max(MIN_FINALISTS, self._plans // 8)
        given = next(candidate for candidate in candidates if not candidate.rank)
        finalists = [given, *(other for other in candidates[:count] if other is not given)]
        tried = [self._planned(finalist.name, finalist.order) for finalist in finalists]
        return self._ranked(tried)

    def borrow(self, tried: list[Trial], finder: OrderFinder) -> list[Trial]:
        """Look again, without what lies in borrowed memory; the best first."""
        found = list(tried)
        by_cost = {one.cost: one for one in reversed(tried)}
        starts = [one for one in tried if by_cost[one.cost] is one][:MAX_BORROWING]
        starts += [one for one in tried if _is_given(one) and one not in starts]
        for start in starts:
            self._borrow_from(start, finder, found)
        return self._ranked(found)

    def _borrow_from(self, start: Trial, finder: OrderFinder, found: list[Trial]) -> None:
        """Go on from an order while that helps; what is met is added."""
        current = start
        for _ in range(MAX_BORROWING_ROUNDS):
            flow = current.planned.flow
            if self._plans <= 0 or flow.sizes == self._entry.sizes or self._is_enough(current.cost):
                return
            tried = [(f"{start.name}, moved", finder.move(flow, current.order))]
            made = construct(flow, {}, lambda _: True)[:MAX_CONSTRUCTED]
            tried += [(f"{candidate.name}, borrowed", candidate.order) for candidate in made]
            seen = [one.order for one in found]
            new = [self._planned(name, order) for name, order in tried if order not in seen]
            found += new
            best = min(new, key=lambda one: one.cost, default=current)
            if best.cost >= current.cost:
                return
            current = best

    def climb(self, tried: list[Trial], peaks: dict[HloComputation, int]) -> Best:
        """Compare moves by their plans: of the entry from several starts, then of what it runs."""
        best = Best(tried[0].cost, tried[0].name)
        starts = tried[:MAX_CLIMBED]
        starts += [one for one in tried if _is_given(one) and one not in starts]
        inner = [flow for flow in self._flows[:-1] if len(flow.nodes) > 1]
        inner.sort(key=lambda flow: -peaks[flow.computation])
        del inner[MAX_CLIMBED:]
        share = self._plans // (len(starts) + len(inner))
        entry = [(self._entry, start) for start in starts]
        for flow, start in [*entry, *((flow, None) for flow in inner)]:
            if share <= 1 or self._is_enough(best.cost):
                break
            order = self.chosen[flow.computation] if start is None else start.order
            climbed = climb(order, partial(self.plan, flow), share, self._is_enough)
            if start is None or climbed.cost < best.cost:
                self.chosen[flow.computation] = climbed.order
            if climbed.cost < best.cost:
                best = Best(climbed.cost, f"{(start or best).name}, climbed")
        return best

    def take_if_less(self, orders: dict[HloComputation, list[int]], cost: int) -> int | None:
        """Choose other orders for all computations if their plan needs less than a size."""
        chosen = self.chosen.copy()
        self.chosen.update(orders)
        found = self.plan(self._entry, self.chosen[self._entry.computation]).cost
        if found < cost:
            return found
        self.chosen.update(chosen)
        return None

    def orders(self) -> dict[HloComputation, list[HloInstruction]]:
        """The orders chosen so far, where they are not the given ones."""
        return {
            computation: order
            for flow in self._flows
            for computation, order in _named(flow, self.chosen[flow.computation]).items()
            if order != flow.nodes
        }

    def plan(self, flow: Flow, order: list[int]) -> Planned:
        """The plan if one computation had another order than is chosen so far."""
        self._plans -= 1
        orders = {
            computation: order
            for computation, order in (self.orders() | _named(flow, order)).items()
            if order != self._stages.schedule.sequence(computation)
        }
        key = flow, *((computation, *order) for computation, order in orders.items())
        if key not in self._known:
            self._known[key] = self._make(flow, orders)
        return self._known[key]

    def _make(self, flow: Flow, orders: Orders) -> Planned:
        stages = in_orders(self._stages, orders)
        placed = {
            value
            for allocation in _temporaries(stages)
            for value in allocation.slices
            if value.instruction.parent is flow.computation
        }
        sizes = [
            size if any(value in placed for value in buffer.values) else 0
            for size, buffer in zip(flow.sizes, flow.buffers, strict=True)
        ]
        return Planned(temporary_bytes(stages), replace(flow, sizes=sizes))

    def _planned(self, name: str, order: list[int]) -> Trial:
        return Trial(name, order, self.plan(self._entry, order))

    def _ranked(self, tried: list[Trial]) -> list[Trial]:
        """The best first, of equals the one that was tried first; its order is chosen."""
        ranked = sorted(tried, key=lambda one: one.cost)
        self.chosen[self._entry.computation] = ranked[0].order
        return ranked


def _is_given(tried: Trial) -> bool:
    return tried.order == list(range(len(tried.order)))


def in_orders(stages: Stages, orders: Orders) -> Stages:
    """The program in other orders of some of its computations; itself where there are none."""
    if not orders:
        return stages
    return stages.rescheduled(
        Schedule({computation: list(order) for computation, order in orders.items()})
    )


def needed_bytes(stages: Stages) -> int:
    """The bytes the program needs in main memory, as planned."""
    return footprint(stages.assignment.allocations)


def temporary_bytes(stages: Stages, color: int = MAIN_MEMORY) -> int:
    return footprint(_temporaries(stages, color), color)


def other_bytes(stages: Stages) -> int:
    """Bytes the program needs in main memory but for temporaries, which no order changes."""
    return needed_bytes(stages) - temporary_bytes(stages)


def _temporaries(stages: Stages, color: int = MAIN_MEMORY) -> Iterator[BufferAllocation]:
    for allocation in stages.assignment.allocations:
        if allocation.color == color and allocation.is_preallocated_temp:
            yield allocation


def _named(flow: Flow, order: Sequence[int]) -> dict[HloComputation, list[HloInstruction]]:
    return {flow.computation: [flow.nodes[number] for number in order]}
