"""Several orders of a program, for a compiler whose plan cannot be predicted to choose from.

A TPU's compiler fills fast memory once the order is fixed: of two orders that keep equally little
alive one may need a third more. So candidates differ in how they are made, and in whether they
count all values or those too large for fast memory. Kinds take turns, ranked by hlomem's plan.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.base.gc_pause import collector_off
from hlomem.opt.candidate import planned
from hlomem.opt.constants import LEAST_SIZES, MAX_MOVED, MOVES_PER_NODE, SMALL_SHARE
from hlomem.opt.orders.flow import FlowBuilder
from hlomem.opt.orders.list_schedules import iter_constructions
from hlomem.opt.orders.local_search import MovesLeft, improve_order
from hlomem.opt.orders.model import peak_of
from hlomem.opt.orders.planned_orders import in_orders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.opt.candidate import Candidate, Program
    from hlomem.opt.orders.flow import Flow


def iter_orders(start: Candidate) -> Iterator[Candidate]:
    """Orders to try of the given program, each once; that of `start` first, if it is another."""
    given = start.given
    builder = FlowBuilder(given.stages, may_reorder_collectives=given.rules.may_reorder_collectives)
    seen: set[tuple[object, ...]] = {()}
    with collector_off():
        kinds = [_made(given, builder, least) for least in LEAST_SIZES]
    if start.orders:
        kinds.insert(0, [replace(start, method="search")])
    for turn in zip_longest(*kinds):
        for made in turn:
            if made is not None:
                key = tuple((computation, *order) for computation, order in made.orders.items())
                if key not in seen:
                    seen.add(key)
                    yield made


def _made(given: Program, builder: FlowBuilder, least: int) -> list[Candidate]:
    """Candidates of one kind, the smallest plan first."""
    peaks: dict[HloComputation, int] = {}
    inner: dict[HloComputation, list[HloInstruction]] = {}
    made: list[Candidate] = []
    *callees, entry = builder.computations()
    for computation in callees:
        flow = _weighed(builder.build(computation, peaks), least)
        _, order = min(_orders_of(flow), key=lambda found: peak_of(flow, found[1]))
        peaks[computation] = peak_of(flow, order)
        inner |= _changed(flow, order)
    flow = _weighed(builder.build(entry, peaks), least)
    for name, order in _orders_of(flow):
        orders = inner | _changed(flow, order)
        plan = in_orders(given.stages, orders)
        made.append(replace(planned(given, plan), stages=None, orders=orders, method=name))
    return sorted(made, key=lambda one: one.temporaries)


def _weighed(flow: Flow, least: int) -> Flow:
    sizes = [size if size >= least else size // SMALL_SHARE for size in flow.sizes]
    return replace(flow, sizes=sizes)


def _orders_of(flow: Flow) -> list[tuple[str, list[int]]]:
    """Constructions, and the best of them and the given order with moves."""
    made = list(iter_constructions(flow))
    best = sorted(made, key=lambda found: peak_of(flow, found[1]))[:MAX_MOVED]
    for name, order in (made[0], *best):
        budget = MovesLeft(MOVES_PER_NODE * len(flow.nodes))
        made += [(f"{name}, moved", moved) for moved in improve_order(flow, order, budget)[-1:]]
    return made


def _changed(flow: Flow, order: list[int]) -> dict[HloComputation, list[HloInstruction]]:
    named = [flow.nodes[node] for node in order]
    return {} if named == flow.nodes else {flow.computation: named}
