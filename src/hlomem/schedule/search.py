"""An order of instructions that needs less memory than the given one, found and proven by planning.

In: the stages of a plan. Out: an `Improvement`: for every computation an order, with the bytes of
temporaries before and after as the planner packs them. Inner computations come first, so that their
callers know what they need. Every computation tries several constructions and moves what is in the
way of the peak; the best of them are planned exactly, and the best plan wins. XLA's own order is
among the candidates: the result is never worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from hlomem.hlo.schedule import Schedule
from hlomem.schedule.bound import lower_bound
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
_FINALISTS: Mapping[Effort, int] = {"low": 2, "default": 4, "high": 12}

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
        self._chosen: dict[HloComputation, list[HloInstruction]] = {}
        self._bound: int | None = None

    def run(self) -> Improvement:
        before = temporary_bytes(self._stages)
        finalists: list[tuple[str, dict[HloComputation, list[HloInstruction]]]] = []
        for computation in self._builder.computations():
            flow = self._builder.build(computation, self._peaks)
            candidates = self._candidates(flow)
            best = candidates[0]
            self._peaks[computation] = best.peak
            if computation is self._stages.module.entry:
                self._bound = lower_bound(flow)
                finalists = [
                    (each.name, self._chosen | self._named(flow, each))
                    for each in candidates[: _FINALISTS[self._effort]]
                ]
            elif best.name != "xla":
                self._chosen |= self._named(flow, best)
        return self._judge(before, finalists)

    def _candidates(self, flow: Flow) -> list[_Candidate]:
        """Orders of one computation, the best first; of equals XLA's."""
        made = []
        seen: set[tuple[int, ...]] = set()
        for rank, (name, order) in enumerate(iter_constructions(flow)):
            if tuple(order) not in seen:
                seen.add(tuple(order))
                made.append(_Candidate(peak_of(flow, order).size, rank, name, order))
        made.sort(key=lambda each: each[:2])
        for each in made[:3]:
            order = improve_order(flow, each.order, self._budget)
            if order != each.order:
                peak = peak_of(flow, order).size
                made.append(_Candidate(peak, each.rank + len(made), f"{each.name}, moved", order))
        made.sort(key=lambda each: each[:2])
        return made

    @staticmethod
    def _named(flow: Flow, found: _Candidate) -> dict[HloComputation, list[HloInstruction]]:
        return {flow.computation: [flow.nodes[number] for number in found.order]}

    def _judge(
        self,
        before: int,
        finalists: list[tuple[str, dict[HloComputation, list[HloInstruction]]]],
    ) -> Improvement:
        """The finalist whose plan is the smallest, if it is smaller than the given one."""
        found = Improvement({}, before, before, self._bound, "xla")
        for name, orders in finalists:
            after = temporary_bytes(self._stages.rescheduled(Schedule(orders)))
            if after < found.after:
                found = Improvement(orders, before, after, self._bound, name)
        return found


def temporary_bytes(stages: Stages, color: int = 0) -> int:
    """Bytes of temporaries in a memory space, as planned."""
    return sum(
        allocation.size
        for allocation in stages.assignment.allocations
        if allocation.color == color and allocation.is_preallocated_temp
    )
