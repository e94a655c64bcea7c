"""An order to compute values again in: the one that keeps least above a number, all places counted.

In: the stages of a plan and a number of bytes. Out: the stages in another order of the entry, or
None. A search for orders lowers the peak alone. What is computed again lowers the peak, too, but at
a price for every place that is above the number: so here the sum over all places counts, and
a weight's update that could run early does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.schedule import Schedule
from hlomem.opt.constants import LEAST_LOWERED
from hlomem.opt.orders.flow import FlowBuilder
from hlomem.opt.orders.model import levels_of
from hlomem.opt.orders.one_computation import construct
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.remat.state import above, inner_peaks

if TYPE_CHECKING:
    from hlomem.pipeline import Stages


def lower_all(stages: Stages, target: int, *, may_reorder_collectives: bool) -> Stages | None:
    """The program in an order with less above a number; None where none is much better."""
    builder = FlowBuilder(stages, may_reorder_collectives=may_reorder_collectives)
    entry = stages.module.entry
    flow = builder.build(entry, inner_peaks(builder))
    given = levels_of(flow, range(len(flow.nodes)))
    wanted = round(target * max(given, default=0) / max(temporary_bytes(stages), 1))
    best, most = None, (1 - LEAST_LOWERED) * above(given, wanted)
    for candidate in construct(flow, {}, lambda _: True):
        left = above(levels_of(flow, candidate.order), wanted)
        if left < most:
            best, most = candidate.order, left
    if best is None:
        return None
    return stages.rescheduled(Schedule({entry: [flow.nodes[node] for node in best]}))
