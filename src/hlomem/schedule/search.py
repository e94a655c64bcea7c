"""An order of instructions that needs less memory than the given one, found and proven by planning.

In: the stages of a plan. Out: an `Improvement`: for every computation an order, with the bytes of
temporaries before and after as the planner packs them. Inner computations come first, so that their
callers know what they need. Every computation tries several constructions and moves what is in the
way of the peak; small ones are searched until the peak is proven to be the least. The best orders
of the entry are planned exactly, and the best plan wins. XLA's own order is among them: the result
is never worse. All budgets count steps, none counts seconds: the same program gets the same order
on every machine.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from hlomem.base.gc_pause import collector_off
from hlomem.hlo.schedule import Schedule
from hlomem.schedule.bound import lower_bound
from hlomem.schedule.climb import Planned, climb
from hlomem.schedule.constructions import iter_constructions
from hlomem.schedule.cost import Delays
from hlomem.schedule.exact import prove
from hlomem.schedule.flow import FlowBuilder
from hlomem.schedule.local_search import Budget, improve_order
from hlomem.schedule.model import peak_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from hlomem.assign.allocation import BufferAllocation
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.pipeline import Stages
    from hlomem.schedule.flow import Flow

Effort: TypeAlias = Literal["low", "default", "high"]
EFFORTS: tuple[Effort, ...] = ("low", "default", "high")
Orders: TypeAlias = "Mapping[HloComputation, Sequence[HloInstruction]]"
_GIVEN = "as given"


class _Limits(NamedTuple):
    """Work that an effort allows."""

    moved_nodes: int
    """Nodes that local search evaluates, in all computations together."""
    proof_steps: int
    """Steps of branch and bound for one computation."""
    planned_nodes: int
    """Nodes of the programs that are planned to judge orders."""
    max_plans: int


_LIMITS: Mapping[Effort, _Limits] = {
    "low": _Limits(0, 0, 0, 3),
    "default": _Limits(1_500_000, 4_000, 60_000, 600),
    "high": _Limits(25_000_000, 100_000, 1_000_000, 10_000),
}
_MAX_MOVES = 400
"""Moves that are tried at most from one construction."""
_NEAR = 1.005
"""How near to the bound no better plan is looked for."""
_MIN_FINALISTS = 3
"""How many orders are planned at least."""
_MAX_CLIMBED = 2
"""How many of the best plans of the entry are climbed from, beside that of the given order; and how
many of what it runs, those that need most."""
_MAX_PROVEN_NODES = 120


class Found(NamedTuple):
    """The order of one computation."""

    computation: HloComputation
    given_peak: int
    """The most bytes of temporaries alive at once in the given order, packing aside."""
    peak: int
    """The same in the order found."""
    method: str
    is_proven: bool
    """Whether no order that keeps the rules has a lower peak."""


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
    found: tuple[Found, ...]
    """Every computation with an order, callees before callers."""


class _Candidate(NamedTuple):
    peak: int
    rank: int
    name: str
    order: list[int]


class _Searched(NamedTuple):
    candidates: list[_Candidate]
    """The best first; of equals the simpler."""
    is_proven: bool


def improve(
    stages: Stages,
    effort: Effort = "default",
    *,
    may_reorder_collectives: bool = False,
    max_slowdown: float = 0.0,
) -> Improvement:
    """Look for an order of every computation that needs less memory.

    `may_reorder_collectives` is for programs of which every device runs the same, and gets this
    order. `max_slowdown` is the share of the program's time, by the model of `cost.py`, that what
    runs in the background may no longer be hidden for.
    """
    with collector_off():
        builder = FlowBuilder(
            stages,
            may_reorder_collectives=may_reorder_collectives,
            keeps_overlap=not max_slowdown,
        )
        return _Search(stages, builder, _LIMITS[effort], max_slowdown).run()


class _Search:
    def __init__(
        self, stages: Stages, builder: FlowBuilder, limits: _Limits, max_slowdown: float
    ) -> None:
        self._stages = stages
        self._builder = builder
        self._limits = limits
        self._max_slowdown = max_slowdown
        self._budget = Budget(limits.moved_nodes)
        self._peaks: dict[HloComputation, int] = {}
        self._bounds: dict[HloComputation, int | None] = {}
        self._flows: list[Flow] = []
        self._chosen: dict[HloComputation, list[int]] = {}
        self._found: list[Found] = []
        self._known: dict[Hashable, _Searched] = {}

    def run(self) -> Improvement:
        """All computations, callees first; the entry is decided by plans."""
        for computation in self._builder.computations():
            flow = self._builder.build(computation, self._peaks)
            searched = self._search(flow)
            best = searched.candidates[0]
            self._flows.append(flow)
            self._bounds[computation] = self._bound_of(flow)
            self._peaks[computation] = best.peak
            self._chosen[computation] = best.order
            given = peak_of(flow, range(len(flow.nodes))).size
            self._found.append(Found(computation, given, best.peak, best.name, searched.is_proven))
        return self._judge(self._flows[-1], searched)

    # One computation, by the model.

    def _bound_of(self, flow: Flow) -> int | None:
        """The bound of a computation, with those of what it calls."""
        inner = {
            node: max(
                self._bounds.get(callee) or 0 for callee in flow.nodes[node].called_computations
            )
            for node in flow.inner
        }
        return lower_bound(replace(flow, inner=inner))

    def _search(self, flow: Flow) -> _Searched:
        """Orders of a computation; those of an equal one, such as another layer, are taken over."""
        if self._max_slowdown:  # equal flows may take other times
            return self._search_anew(flow)
        key = _key(flow)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._search_anew(flow)
        return known

    def _search_anew(self, flow: Flow) -> _Searched:
        allows = self._allows(flow)
        made = []
        seen: set[tuple[int, ...]] = set()
        for rank, (name, order) in enumerate(iter_constructions(flow)):
            if tuple(order) not in seen and (not rank or allows(order)):
                seen.add(tuple(order))
                made.append(_Candidate(peak_of(flow, order).size, rank, name, order))
        made.sort(key=lambda candidate: candidate[:2])
        floor = lower_bound(flow, may_borrow=False) or 0
        if made[0].peak <= floor:
            return _Searched(made, is_proven=True)
        for start in made.copy():
            order = improve_order(
                flow, start.order, self._budget.share(_MAX_MOVES * len(flow.nodes))
            )
            if order != start.order and allows(order):
                peak = peak_of(flow, order).size
                made.append(_Candidate(peak, len(made) + _RANKS, f"{start.name}, moved", order))
        made.sort(key=lambda candidate: candidate[:2])
        is_proven = self._prove(flow, made, floor) if not self._max_slowdown else False
        made.sort(key=lambda candidate: candidate[:2])
        return _Searched(made, is_proven)

    def _prove(self, flow: Flow, made: list[_Candidate], floor: int) -> bool:
        """Look through all orders of a small computation; whether the best is proven to be so."""
        best = made[0]
        if len(flow.nodes) > _MAX_PROVEN_NODES or not self._limits.proof_steps:
            return best.peak <= floor
        proof = prove(flow, best.order, floor, self._limits.proof_steps)
        if proof.peak < best.peak:
            made.append(_Candidate(proof.peak, len(made) + _RANKS, "branch and bound", proof.order))
        return proof.is_proven

    def _allows(self, flow: Flow) -> Callable[[Sequence[int]], bool]:
        """A test of whether an order hides what runs in the background well enough."""
        if not self._max_slowdown:
            return lambda _: True
        delays = Delays(flow, self._stages.options.machine.size_of)
        most = delays.of(range(len(flow.nodes))) + self._max_slowdown * delays.total
        return lambda order: delays.of(order) <= most

    # The program, by its plans.

    def _judge(self, entry: Flow, searched: _Searched) -> Improvement:
        """The order whose plan is the smallest, if it is smaller than that of the given one."""
        before = temporary_bytes(self._stages)
        bound = self._bounds[entry.computation]
        plans = self._plans()
        given = next(candidate for candidate in searched.candidates if not candidate.rank)
        finalists = searched.candidates[: max(_MIN_FINALISTS, plans // 8)]
        finalists += [given] if given not in finalists else []
        costs = self._costs(entry, finalists, given, before)
        ranking = sorted(range(len(finalists)), key=lambda place: (costs[place], place))
        best = finalists[ranking[0]]
        name, cost = best.name, costs[ranking[0]]
        self._chosen[entry.computation] = best.order
        if not self._max_slowdown:
            starts = [finalists[place] for place in ranking[:_MAX_CLIMBED]]
            starts += [given] if given not in starts else []
            floor = round((bound or 0) * _NEAR)
            name, cost = self._climb(entry, starts, name, cost, plans - len(costs), floor)
        if cost >= before:
            return Improvement({}, before, before, bound, _GIVEN, self._report({}))
        orders = self._orders()
        self._found[-1] = self._found[-1]._replace(method=name)
        return Improvement(orders, before, cost, bound, name, self._report(orders))

    def _costs(
        self, entry: Flow, finalists: list[_Candidate], given: _Candidate, before: int
    ) -> list[int]:
        """The bytes the plans of the best orders need; that of the given program is known."""
        self._chosen[entry.computation] = given.order
        is_known = not self._orders()
        return [
            before
            if is_known and candidate is given
            else self._planned(entry, candidate.order).cost
            for candidate in finalists
        ]

    def _plans(self) -> int:
        """How many plans of the program are worth their time."""
        nodes = sum(len(flow.nodes) for flow in self._flows)
        return min(self._limits.max_plans, self._limits.planned_nodes // nodes)

    def _climb(
        self,
        entry: Flow,
        starts: list[_Candidate],
        name: str,
        cost: int,
        plans: int,
        floor: int,
    ) -> tuple[str, int]:
        """Judge moves by plans: of the entry from several starts, then of what it runs."""
        inner = [flow for flow in self._flows[:-1] if len(flow.nodes) > 1]
        inner.sort(key=lambda flow: -self._peaks[flow.computation])
        del inner[_MAX_CLIMBED:]
        share = plans // (len(starts) + len(inner))
        for start in starts:
            if share > 1 and cost > floor:
                climbed = climb(start.order, partial(self._planned, entry), share, floor)
                if climbed.cost < cost:
                    name, cost = f"{start.name}, climbed", climbed.cost
                    self._chosen[entry.computation] = climbed.order
        for flow in inner:
            if share > 1 and cost > floor:
                order = self._chosen[flow.computation]
                climbed = climb(order, partial(self._planned, flow), share, floor)
                self._chosen[flow.computation] = climbed.order
                if climbed.cost < cost:
                    name, cost = f"{name}, climbed", climbed.cost
        return name, cost

    def _planned(self, flow: Flow, order: list[int]) -> Planned:
        """The plan if one computation had another order than is chosen so far."""
        orders = self._orders() | _named(flow, order)
        stages = self._stages.rescheduled(Schedule(orders))
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

    def _orders(self) -> dict[HloComputation, list[HloInstruction]]:
        """The orders chosen so far, where they are not the given ones."""
        return {
            computation: order
            for flow in self._flows
            for computation, order in _named(flow, self._chosen[flow.computation]).items()
            if order != flow.nodes
        }

    def _report(self, orders: Orders) -> tuple[Found, ...]:
        """The findings for each computation, given the orders taken in the end."""
        report = []
        for flow, found in zip(self._flows, self._found, strict=True):
            is_taken = flow.computation in orders
            order = self._chosen[flow.computation] if is_taken else range(len(flow.nodes))
            peak = peak_of(flow, order).size
            method = found.method if is_taken else _GIVEN
            is_proven = found.is_proven and peak <= found.peak
            report.append(found._replace(peak=peak, method=method, is_proven=is_proven))
        return tuple(report)


_RANKS = 100
"""More than there are constructions."""


def _key(flow: Flow) -> Hashable:
    """The key two flows share if one's orders are as good for the other."""
    return (
        tuple(map(tuple, flow.before)),
        tuple(flow.sizes),
        tuple(flow.values),
        tuple((node, tuple(shared)) for node, shared in flow.shares.items()),
        tuple(flow.inner.items()),
        tuple(flow.counted_inside.items()),
        next(
            (
                node
                for node, instruction in enumerate(flow.nodes)
                if instruction is flow.computation.root
            ),
            None,
        ),
    )


def _named(flow: Flow, order: Sequence[int]) -> dict[HloComputation, list[HloInstruction]]:
    return {flow.computation: [flow.nodes[number] for number in order]}


def temporary_bytes(stages: Stages, color: int = 0) -> int:
    """Bytes of temporaries in a memory space, as planned."""
    return sum(allocation.size for allocation in _temporaries(stages, color))


def _temporaries(stages: Stages, color: int = 0) -> Iterator[BufferAllocation]:
    for allocation in stages.assignment.allocations:
        if allocation.color == color and allocation.is_preallocated_temp:
            yield allocation
