"""An order of instructions that needs less memory than the given one, found and proven by planning.

Inner computations come first, so that their callers know what they need. The best orders of the
entry are planned exactly. XLA's own is among them: the result is never worse.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from hlomem.base.gc_pause import collector_off
from hlomem.opt.constants import NEAR_BOUND
from hlomem.opt.goal import DEFAULT_RULES, ORDER_WORK, OrderWork, Rules
from hlomem.opt.orders.bound import NO_MOMENT, Moment, find_moment
from hlomem.opt.orders.cost import Delays
from hlomem.opt.orders.flow import Flow, FlowBuilder, flows_of
from hlomem.opt.orders.model import peak_of
from hlomem.opt.orders.one_computation import OrderFinder, Searched
from hlomem.opt.orders.planned_orders import Best, OrderPlanner, temporary_bytes
from hlomem.opt.orders.xla_schedulers import Lists, depth_first

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.pipeline import Stages

Orders: TypeAlias = "Mapping[HloComputation, Sequence[HloInstruction]]"
Verdict: TypeAlias = Literal["at the bound", "proven", "open"]
_GIVEN = "as given"
_DEPTH_FIRST = "xla, depth first"


class Found(NamedTuple):
    computation: HloComputation
    given_peak: int
    """The most bytes of temporaries alive at once in the given order, packing aside."""
    peak: int
    """The same in the order found."""
    method: str
    is_proven: bool
    """Whether no order that keeps the rules has a lower peak."""


class Improvement(NamedTuple):
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

    @property
    def verdict(self) -> Verdict:
        """How good the order is known to be."""
        if self.bound is not None and self.after <= self.bound:
            return "at the bound"
        return "proven" if all(order.is_proven for order in self.found) else "open"


def improve(
    stages: Stages, rules: Rules = DEFAULT_RULES, work: OrderWork | None = None
) -> Improvement:
    """Look for an order of every computation that needs less memory, by the work of an effort.

    Or by less.
    """
    with collector_off():
        return _Search(stages, rules, work or ORDER_WORK[rules.effort], is_told=True).run()


def find_orders(stages: Stages, rules: Rules, work: OrderWork | None = None) -> Orders:
    """The orders of the same search, without a bound that tells how good they are."""
    with collector_off():
        return _Search(stages, rules, work or ORDER_WORK[rules.effort], is_told=False).run().orders


class _Search:
    def __init__(self, stages: Stages, rules: Rules, limits: OrderWork, *, is_told: bool) -> None:
        self._stages = stages
        self._builder = _builder_of(stages, rules)
        self._limits = limits
        self._exposed = rules.max_slowdown - 1
        self._is_told = is_told
        self._finder = OrderFinder(limits, is_told=is_told)
        self._lists = Lists(stages)
        self._depth_first: dict[HloComputation, list[int]] = {}
        self._peaks: dict[HloComputation, int] = {}
        self._bounds: dict[HloComputation, Moment | None] = {}
        self._flows: list[Flow] = []
        self._chosen: dict[HloComputation, list[int]] = {}
        self._found: list[Found] = []

    def run(self) -> Improvement:
        """All computations, callees first; the entry is decided by plans."""
        for computation in self._builder.computations():
            flow = self._builder.build(computation, self._peaks)
            searched = self._finder.find(flow, self._others(flow), self._allows(flow))
            best = searched.candidates[0]
            self._flows.append(flow)
            self._peaks[computation] = best.peak
            self._chosen[computation] = best.order
            given = peak_of(flow, range(len(flow.nodes)))
            self._found.append(Found(computation, given, best.peak, best.name, searched.is_proven))
        return self._judge(searched)

    def _others(self, flow: Flow) -> dict[str, list[int]]:
        """The order of XLA's other scheduler, where the given order's rules allow it."""
        node_of = {instruction: node for node, instruction in enumerate(flow.nodes)}
        order = [node_of[part] for part in depth_first(self._lists, flow.computation)]
        place_of = {node: place for place, node in enumerate(order)}
        for node, needed in enumerate(flow.before):
            if any(place_of[earlier] > place_of[node] for earlier in needed):
                return {}
        self._depth_first[flow.computation] = order
        return {_DEPTH_FIRST: order}

    @cached_property
    def _bound(self) -> int | None:
        """The bound of the entry, computed when it is asked for."""
        for flow in self._flows:
            self._bounds[flow.computation] = moment = self._bound_of(flow)
        return None if moment is None else moment.size

    def _is_enough(self, cost: int) -> bool:
        """Whether no order needs much less than so many bytes."""
        return cost <= round((self._bound or 0) * NEAR_BOUND)

    def _bound_of(self, flow: Flow) -> Moment | None:
        """The bound of a computation, with those of what it calls."""
        inside = {
            node: max(
                self._bounds.get(callee) or NO_MOMENT
                for callee in flow.nodes[node].called_computations
            )
            for node in flow.inner
        }
        inner = {node: moment.size for node, moment in inside.items()}
        return find_moment(replace(flow, inner=inner), inside)

    def _allows(self, flow: Flow) -> Callable[[Sequence[int]], bool] | None:
        """A test that an order hides the background work well enough; None where any will do."""
        if not self._exposed:
            return None
        delays = Delays(flow.nodes, self._stages.options.machine)
        most = delays.of(range(len(flow.nodes))) + self._exposed * delays.total
        return lambda order: delays.of(order) <= most

    def _judge(self, searched: Searched) -> Improvement:
        """The order whose plan is the smallest, if it is smaller than that of the given one."""
        before = temporary_bytes(self._stages)
        plans = self._count_plans()
        planner = OrderPlanner(self._stages, self._flows, self._chosen, plans, self._is_enough)
        tried = planner.choose(searched.candidates)
        best = Best(tried[0].cost, tried[0].name)
        if not self._exposed:
            best = planner.climb(planner.borrow(tried, self._finder), self._peaks)
            if len(self._depth_first) == len(self._flows):
                cost = planner.take_if_less(self._depth_first, best.cost)
                best = Best(cost, _DEPTH_FIRST) if cost is not None else best
        bound = self._bound if self._is_told else None
        if best.cost >= before:
            return Improvement({}, before, before, bound, _GIVEN, self._report({}))
        orders = planner.orders()
        self._found[-1] = self._found[-1]._replace(method=best.name)
        return Improvement(orders, before, best.cost, bound, best.name, self._report(orders))

    def _count_plans(self) -> int:
        """How many plans of the program are worth their time."""
        nodes = sum(len(flow.nodes) for flow in self._flows)
        return min(self._limits.max_plans, self._limits.planned_nodes // nodes)

    def _report(self, orders: Orders) -> tuple[Found, ...]:
        """The findings for each computation, given the orders taken in the end."""
        report = []
        for flow, found in zip(self._flows, self._found, strict=True):
            is_taken = flow.computation in orders
            order = self._chosen[flow.computation] if is_taken else range(len(flow.nodes))
            peak = peak_of(flow, order)
            method = found.method if is_taken else _GIVEN
            is_proven = found.is_proven and peak <= found.peak
            report.append(found._replace(peak=peak, method=method, is_proven=is_proven))
        return tuple(report)


def _builder_of(stages: Stages, rules: Rules) -> FlowBuilder:
    may_reorder = rules.may_reorder_collectives
    if rules.max_slowdown <= 1:
        return flows_of(stages, may_reorder_collectives=may_reorder)
    return FlowBuilder(stages, may_reorder_collectives=may_reorder, keeps_overlap=False)
