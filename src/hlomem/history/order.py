"""The order of XLA's lists, which its module remembers and its text does not show.

Value ids follow the order of computations; newer versions keep these sorted incrementally, in an
order that depends on that in which the compiler's passes made them. All is inferred
(docs/history.md): it decides ids, never an offset. Instructions and users are as in the text, calls
apart, so that the lines of a value's lists may be in another order than XLA's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hlomem.analysis.list_order import ListOrder
from hlomem.history.computations.engine import creation_order
from hlomem.history.computations.incremental_order import sorted_incrementally
from hlomem.history.evidence import Traces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.history.tables import Tables
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.ir.module import Creation
    from hlomem.machines.options import Options


def infer_order(call_graph: CallGraph, options: Options) -> ListOrder:
    """The order XLA had, as far as ids, or else text and names, tell."""
    return order_by(tables_of(options.machine.platform), call_graph, options)


def tables_of(platform: str) -> Tables:
    """The rules for the compiler of a platform, imported when first asked for."""
    tables: Tables = import_module(_HOME_OF[platform]).TABLES
    return tables


_HOME_OF = {
    "cpu": "hlomem.history.computations.cpu_passes",
    "gpu": "hlomem.history.computations.gpu_passes",
    "tpu": "hlomem.history.computations.tpu_passes",
}


def order_by(tables: Tables, call_graph: CallGraph, options: Options) -> ListOrder:
    if call_graph.module.creation is not None:
        return _order_of_ids(call_graph, call_graph.module.creation)
    tables = tables.in_force(options)
    traces = Traces(call_graph)
    created = [trace.computation for trace in creation_order(traces, tables.stages)]
    computations: Sequence[HloComputation] = call_graph.module.computations
    if options.sorts_computations_incrementally:
        computations = sorted_incrementally(
            created,
            call_graph,
            delta=tables.delta,
            lost_calls=tables.count_lost_calls(traces),
            vanished=tables.find_vanished(created, traces),
        )
    elif options.sorts_computations_by_content:
        from hlomem.history.computations.by_content import sorted_by_content  # noqa: PLC0415 - start-up

        computations = sorted_by_content(call_graph)
    return ListOrder(computations, _listed(created, call_graph, _is_call), {})


def _order_of_ids(call_graph: CallGraph, creation: Creation) -> ListOrder:
    created = sorted(creation.computations, key=creation.computations.__getitem__)
    instructions = _listed(created, call_graph, creation.instructions.__getitem__)
    return ListOrder(list(creation.computations), instructions, {})


def _listed(
    computations: Iterable[HloComputation],
    call_graph: CallGraph,
    key: Callable[[HloInstruction], int],
) -> list[HloInstruction]:
    """The instructions outside fusions, those of each computation sorted."""
    return [
        instruction
        for computation in computations
        if not call_graph.is_fused(computation)
        for instruction in sorted(computation.instructions, key=key)
    ]


def _is_call(instruction: HloInstruction) -> bool:
    """Calls come last (`parallel_task_assignment.cc`, `small_while_loop_hoisting_pass.cc`)."""
    return instruction.opcode == "call"
