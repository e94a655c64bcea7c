"""An order of instructions that needs less memory than the given one, found and proven by planning.

In: the stages of a plan. Out: an `Improvement`: for every computation an order, with the bytes of
temporaries before and after as the planner packs them. Inner computations come first, so that their
callers know what they need. Every computation tries several constructions and moves what is in the
way of the peak; the best of them are planned exactly, and the best plan wins. XLA's own order is
among the candidates: the result is never worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from hlomem.hlo.schedule import Schedule
from hlomem.schedule.bound import lower_bound
from hlomem.schedule.climb import climb
from hlomem.schedule.constructions import iter_constructions
from hlomem.schedule.flow import FlowBuilder
from hlomem.schedule.local_search import Budget, improve_order
from hlomem.schedule.model import peak_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.pipeline import Stages
    from hlomem.schedule.flow import Flow

Effort: TypeAlias = Literal["low", "default", "high"]
_NODES_PER_EFFORT: Mapping[Effort, int] = {"low": 0, "default": 400_000, "high": 8_000_000}

Orders: TypeAlias = "Mapping[HloComputation, Sequence[HloInstruction]]"


class Improvement(NamedTuple):
    """An order that was found, and what it is worth."""

    orders: Orders
    """Only of the computations whose order is another; empty where none is better."""
    before: int
    """Bytes of temporaries in the given order, as planned."""
    after: int
    """Bytes of temporaries in the order found, as planned."""
    bound: int | None
    """Bytes that the temporaries of the entry need in any order; None where it is unknown."""
    method: str
    """How the entry's order was made."""


class _Candidate(NamedTuple):
    peak: int
    rank: int
    name: str
    order: list[int]


def improve(stages: Stages, effort: Effort = "default") -> Improvement:
    """Look for an order of every computation that needs less memory."""
    return _Search(stages, effort).run()


class _Search:
    def __init__(self, stages: Stages, effort: Effort) -> None:
        self._stages = stages
        self._effort = effort
        self._budget = Budget(_NODES_PER_EFFORT[effort])
        self._builder = FlowBuilder(stages)
        self._peaks: dict[HloComputation, int] = {}
        self._bounds: dict[HloComputation, int] = {}
        self._chosen: dict[HloComputation, list[HloInstruction]] = {}

    def run(self) -> Improvement:
        """All computations, callees first; the entry is decided by plans."""
        entry = self._stages.module.entry
        for computation in self._builder.computations():
            flow = self._builder.build(computation, self._peaks)
            candidates = self._candidates(flow)
            self._bounds[computation] = self._bound_of(flow) or 0
            if computation is entry:
                return self._judge(flow, candidates)
            best = candidates[0]
            self._peaks[computation] = best.peak
            if best.name != "xla":
                self._chosen |= _named(flow, best.order)
        raise AssertionError("every module has an entry")

    def _bound_of(self, flow: Flow) -> int | None:
        """The bound of a computation, with those of what it calls."""
        inner = {
            node: max(self._bounds.get(each, 0) for each in flow.nodes[node].called_computations)
            for node in flow.inner
        }
        return lower_bound(replace(flow, inner=inner))

    def _candidates(self, flow: Flow) -> list[_Candidate]:
        """Orders of one computation, the best first; of equals XLA's."""
        made = []
        seen: set[tuple[int, ...]] = set()
        for rank, (name, order) in enumerate(iter_constructions(flow)):
            if tuple(order) not in seen:
                seen.add(tuple(order))
                made.append(_Candidate(peak_of(flow, order).size, rank, name, order))
        made.sort(key=lambda each: each[:2])
        for each in made[:_MOVED]:
            order = improve_order(flow, each.order, self._budget)
            if order != each.order:
                peak = peak_of(flow, order).size
                made.append(_Candidate(peak, each.rank + len(made), f"{each.name}, moved", order))
        made.sort(key=lambda each: each[:2])
        return made

    def _judge(self, flow: Flow, candidates: list[_Candidate]) -> Improvement:
        """The order whose plan is the smallest, if it is smaller than that of the given one."""

        def cost_of(order: list[int]) -> int:
            orders = self._chosen | _named(flow, order)
            return temporary_bytes(self._stages.rescheduled(Schedule(orders)))

        before = temporary_bytes(self._stages)
        bound = self._bound_of(flow)
        finalists = candidates[: self._plans(flow) // 4 + 2]
        costs = [(cost_of(each.order), each) for each in finalists]
        cost, best = min(costs, key=lambda each: each[0])
        order, name = best.order, best.name
        if cost > (bound or 0):
            climbed, order = climb(flow, order, cost_of, self._plans(flow))
            name, cost = (f"{name}, climbed", climbed) if climbed < cost else (name, cost)
        if cost >= before:
            return Improvement({}, before, before, bound, "xla")
        return Improvement(self._chosen | _named(flow, order), before, cost, bound, name)

    def _plans(self, flow: Flow) -> int:
        """How many plans of the program are worth their time."""
        return min(200, _PLANNED_NODES[self._effort] // max(1, len(flow.nodes)))


_MOVED = 3
"""How many of the best constructions are moved."""
_PLANNED_NODES: Mapping[Effort, int] = {"low": 0, "default": 10_000, "high": 200_000}


def _named(flow: Flow, order: list[int]) -> dict[HloComputation, list[HloInstruction]]:
    return {flow.computation: [flow.nodes[number] for number in order]}


def temporary_bytes(stages: Stages, color: int = 0) -> int:
    """Bytes of temporaries in a memory space, as planned."""
    return sum(
        allocation.size
        for allocation in stages.assignment.allocations
        if allocation.color == color and allocation.is_preallocated_temp
    )
