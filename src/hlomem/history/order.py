"""The order of XLA's lists, which its module remembers and its text does not show.

In: a call graph and options. Out: a `ListOrder`. Value ids follow the order of computations; the
positions of a value follow the order in which computations and instructions stand in XLA's lists.
Newer versions keep computations sorted incrementally, so that their order depends on the order in
which they were made, and that on the passes of the compiler.

Everything here is inferred (docs/history.md): it decides ids and the order of lists, never a place.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hlomem.analysis.list_order import ListOrder
from hlomem.history.computations.engine import creation_order
from hlomem.history.computations.incremental_order import sorted_incrementally
from hlomem.history.evidence import Traces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.history.evidence import Trace
    from hlomem.history.tables import Tables
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.machines.options import Options


def infer_order(call_graph: CallGraph, options: Options) -> ListOrder:
    """The order XLA had, as far as ids, or else text and names, tell."""
    return order_by(tables_of(options.machine.platform), call_graph, options)


def tables_of(platform: str) -> Tables:
    """The rules for the compiler of a platform, imported when first asked for."""
    tables: Tables = import_module(_HOME_OF[platform]).TABLES
    return tables


_HOME_OF = {
    "cpu": "hlomem.history.cpu",
    "gpu": "hlomem.history.gpu",
    "tpu": "hlomem.history.tpu",
}


def order_by(tables: Tables, call_graph: CallGraph, options: Options) -> ListOrder:
    """The order that some rules tell."""
    tables = tables.in_force(options)
    traces = Traces(call_graph)
    if call_graph.module.creation is not None:
        return _order_of_ids(tables, traces, options)
    listed = creation_order(traces, tables.stages)
    created = [trace.computation for trace in listed]
    computations: Sequence[HloComputation] = call_graph.module.computations
    if options.sorts_computations_incrementally:
        vanished = tables.find_vanished(created, traces)
        computations = sorted_incrementally(
            created,
            call_graph,
            delta=tables.delta,
            lost_calls=tables.count_lost_calls(traces),
            vanished=vanished,
        )
    elif options.sorts_computations_by_content:
        from hlomem.history.computations.by_content import sorted_by_content  # noqa: PLC0415 - start-up

        computations = sorted_by_content(call_graph)
    if options.reparses_module:
        listed = [traces[flow] for flow in _read_anew(computations, traces)]
    return _list_instructions(tables, computations, listed)


def _list_instructions(
    tables: Tables, computations: Sequence[HloComputation], listed: list[Trace]
) -> ListOrder:
    """The lists outside fusions."""
    instructions: list[HloInstruction] = []
    users: dict[HloInstruction, list[HloInstruction]] = {}
    for trace in listed:
        if not trace.is_fused:
            instructions += tables.instructions_of(trace)
            users.update(tables.users_in(trace))
    return ListOrder(computations, instructions, users)


def _order_of_ids(tables: Tables, traces: Traces, options: Options) -> ListOrder:
    """The order that ids settle; users have none, so that theirs is inferred all the same."""
    creation = traces.call_graph.module.creation
    assert creation is not None
    computations = list(creation.computations)
    listed = sorted(computations, key=creation.computations.__getitem__)
    if options.reparses_module:
        listed = _read_anew(computations, traces)
    instructions: list[HloInstruction] = []
    users: dict[HloInstruction, list[HloInstruction]] = {}
    for computation in listed:
        if not traces.call_graph.is_fused(computation):
            instructions += sorted(computation.instructions, key=creation.instructions.__getitem__)
            users.update(tables.users_in(traces[computation]))
    return ListOrder(computations, instructions, users)


def _read_anew(computations: Sequence[HloComputation], traces: Traces) -> list[HloComputation]:
    """The computations of a module that was read callees first, then what was made afterwards."""
    return sorted(
        computations, key=lambda computation: traces[computation].is_called_by("async-start")
    )
