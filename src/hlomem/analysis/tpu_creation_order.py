"""In which order libtpu made the computations of a module.

As `hlomem.analysis.creation_order`, but for the passes of the TPU compiler, whose order the pass
dumps of libtpu show (docs/tpu-rules.md):

1. those the program came with, then those the partitioner made of them,
2. comparators of top-k; clones that rewriters of sorts and reductions made,
3. fusions around gathers and scatters; reducers of dimensions that were split (`reduce_sub`),
4. bodies of fusions, numbered; then those around one bitcast,
5. loops that were widened (`wide.`): for each loop, inner ones first, its condition and its body,
6. bodies of loops into which constants were sunk (`.sunk`), for each loop in the same order,
7. copies of computations that two calls would share otherwise,
8. computations of asynchronous operations.

The bodies of fusions in a loop are cloned together with the loop's body, just before it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.analysis.creation_order import (
    _PARTITIONED,
    _derivation_priorities,
    _in_order_of_parameters,
    _number,
    is_derived,
    split_number,
)

if TYPE_CHECKING:
    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction

_TOP_K = "compare-greater-than"
_SPLIT_REDUCER = ".reduce_sub_computation"
_SUNK = ".sunk"
_WIDENED = re.compile(r"^wide\.")
_LATE_FUSION = "bitcast_fusion"


def tpu_creation_order(call_graph: CallGraph) -> list[HloComputation]:
    """The computations of a module, the oldest first."""
    computations = call_graph.module.computations
    loops = _loops_inner_first(call_graph)
    widened, sunk = _remade_for_loops(loops, call_graph)
    asynchronous = [each for each in computations if _is_asynchronous(each, call_graph)]
    placed = {*widened, *sunk, *asynchronous}
    flattened = [
        each
        for each in computations
        if each not in placed and _is_flattened(each, placed, call_graph)
    ]
    placed.update(flattened)
    own: list[HloComputation] = []
    partitioned: list[HloComputation] = []
    derived: list[HloComputation] = []
    reducers: list[HloComputation] = []
    late_reducers: list[HloComputation] = []
    early_fused: list[HloComputation] = []
    fused: list[HloComputation] = []
    for computation in computations:
        if computation in placed:
            continue
        name = computation.name
        if call_graph.is_fused(computation):
            (early_fused if _moves_by_index(computation, call_graph) else fused).append(computation)
        elif _SPLIT_REDUCER in name:
            (late_reducers if call_graph.callsites[computation] else reducers).append(computation)
        elif name.startswith(_TOP_K) or is_derived(computation, call_graph):
            derived.append(computation)
        elif name.endswith(_PARTITIONED):
            partitioned.append(computation)
        else:
            own.append(computation)
    own.sort(key=_number)
    early_fused.sort(key=_number)
    fused.sort(key=lambda each: (each.name.startswith(_LATE_FUSION), _number(each)))
    partitioned = _in_order_of_parameters(
        partitioned, dict.fromkeys(partitioned, (0, 0)), call_graph
    )
    priorities = _derivation_priorities(derived, call_graph, False)
    derived = _in_order_of_parameters(derived, priorities, call_graph)
    derived.sort(key=lambda each: not each.name.startswith(_TOP_K))
    return [
        *own,
        *partitioned,
        *derived,
        *early_fused,
        *reducers,
        *fused,
        *late_reducers,
        *widened,
        *sunk,
        *flattened,
        *asynchronous,
    ]


def _loops_inner_first(call_graph: CallGraph) -> list[HloInstruction]:
    """The loops, those of callees first, within a computation by number."""
    loops: list[HloInstruction] = []
    for computation in call_graph.module.computations:
        if not call_graph.is_fused(computation):
            here = [each for each in computation.instructions if each.opcode == "while"]
            loops += sorted(here, key=lambda loop: split_number(loop.name)[1])
    return loops


def _remade_for_loops(
    loops: list[HloInstruction], call_graph: CallGraph
) -> tuple[dict[HloComputation, None], dict[HloComputation, None]]:
    """What was made when loops were widened, and when constants were sunk into them."""
    widened: dict[HloComputation, None] = {}
    sunk: dict[HloComputation, None] = {}
    for loop in loops:
        body, condition = loop.called_computations
        for computation in (condition, body):
            if computation.name.endswith(_SUNK):
                sunk.update(_with_fusions(computation, call_graph))
            elif _WIDENED.match(computation.name):
                widened.update(_with_fusions(computation, call_graph))
    return widened, sunk


def _with_fusions(computation: HloComputation, call_graph: CallGraph) -> dict[HloComputation, None]:
    """A computation after the bodies of fusions that were cloned with it."""
    made: dict[HloComputation, None] = {}
    for instruction in call_graph.post_order(computation):
        if instruction.opcode == "fusion":
            _add_nested(instruction.called_computations[0], call_graph, made)
    made[computation] = None
    return made


def _add_nested(
    body: HloComputation, call_graph: CallGraph, made: dict[HloComputation, None]
) -> None:
    for callee in call_graph.callees[body]:
        if call_graph.is_fused(callee):
            _add_nested(callee, call_graph, made)
    made[body] = None


def _is_asynchronous(computation: HloComputation, call_graph: CallGraph) -> bool:
    sites = call_graph.callsites[computation]
    return bool(sites) and sites[0].opcode == "async-start"


def _is_flattened(
    computation: HloComputation, late: set[HloComputation], call_graph: CallGraph
) -> bool:
    """Whether it was copied for a caller made late, while the original is still in use."""
    original, is_clone, _ = computation.name.rpartition(".clone")
    if not is_clone or original not in call_graph.module.computation_by_name:
        return False
    return any(computation in call_graph.callees[caller] for caller in late)


def _moves_by_index(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether a fusion was made around a gather or scatter, long before all others."""
    return not call_graph.bodies[computation].opcodes.isdisjoint(("gather", "scatter"))
