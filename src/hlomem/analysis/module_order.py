"""What XLA's module remembers and its text does not: the order of its lists.

Value ids follow the order of computations; the positions of a value follow the order in which
computations and instructions stand in XLA's lists. Newer versions keep computations sorted
incrementally, so their order depends on the order in which they were made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlomem.analysis.creation_order import creation_order
from hlomem.analysis.instruction_order import instructions_by_age, reordered_users
from hlomem.analysis.topological_sort import OnlineTopologicalSort
from hlomem.analysis.tpu_creation_order import tpu_creation_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.options import Options


@dataclass(frozen=True, slots=True)
class ModuleOrder:
    """The order of a module's lists."""

    computations: Sequence[HloComputation]
    """`HloModule::MakeComputationPostOrder`: callees before callers."""
    instructions: Sequence[HloInstruction]
    """The instructions outside fusions, in the order of `computations()` and `instructions()`."""
    users: Mapping[HloInstruction, list[HloInstruction]]
    """`HloInstruction::users()`, where it is not in the order of the text."""


def infer_order(call_graph: CallGraph, options: Options) -> ModuleOrder:
    """The order XLA had, as far as text and names tell."""
    if options.backend.name.startswith("tpu"):
        created = tpu_creation_order(call_graph)
    else:
        created = creation_order(
            call_graph, rewrites_reductions_last=options.rewrites_reductions_last
        )
    if options.sorts_computations_incrementally:
        computations: Sequence[HloComputation] = _sorted_incrementally(created, call_graph)
    else:
        computations = call_graph.module.computations
    if options.sorts_computations_by_content:
        computations = sorted(computations, key=lambda each: _instruction_count(each, call_graph))
    instructions: list[HloInstruction] = []
    users: dict[HloInstruction, list[HloInstruction]] = {}
    for computation in created:
        if not call_graph.is_fused(computation):
            instructions += instructions_by_age(computation, call_graph)
            users.update(reordered_users(computation, call_graph))
    return ModuleOrder(computations, instructions, users)


def _instruction_count(computation: HloComputation, call_graph: CallGraph) -> int:
    if call_graph.is_fused(computation):
        return call_graph.bodies[computation].instruction_count
    return len(computation.instructions)


def _sorted_incrementally(
    created: list[HloComputation], call_graph: CallGraph
) -> list[HloComputation]:
    """Replay how the computations were made and called (`HloModule::AddComputationInternal`).

    A computation that calls only older ones was cut out of its caller, which called them before.
    """
    rank = {computation: i for i, computation in enumerate(created)}
    callers: dict[HloComputation, list[HloComputation]] = {each: [] for each in created}
    for computation in created:
        for callee in call_graph.callees[computation]:
            callers[callee].append(computation)
    order: OnlineTopologicalSort[HloComputation] = OnlineTopologicalSort()
    for computation in created:
        order.add_node(computation)
        for caller in _callers_at(rank[computation], computation, callers, rank):
            order.add_edge(caller, computation)
        callees = call_graph.callees[computation]
        if not callees:
            continue
        for callee in sorted(callees, key=rank.__getitem__):
            if rank[callee] < rank[computation]:
                order.add_edge(computation, callee)
                for caller in callers[computation]:
                    if rank[caller] < rank[computation] and caller not in callers[callee]:
                        order.remove_edge(caller, callee)
    return order.reverse_order()


def _callers_at(
    time: int,
    computation: HloComputation,
    callers: dict[HloComputation, list[HloComputation]],
    rank: dict[HloComputation, int],
) -> list[HloComputation]:
    """Who called a computation when no computation younger than `time` was there."""
    if all(rank[caller] < time for caller in callers[computation]):
        return callers[computation]
    found: dict[HloComputation, None] = {}
    pending = list(reversed(callers[computation]))
    while pending:
        caller = pending.pop()
        if rank[caller] < time:
            found[caller] = None
        else:
            pending += reversed(callers[caller])
    return list(found)
