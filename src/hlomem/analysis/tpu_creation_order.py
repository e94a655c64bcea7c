"""In which order libtpu made the computations of a module.

As `hlomem.analysis.creation_order`, but for the passes of the TPU compiler, whose order the pass
dumps of libtpu show (docs/tpu-rules.md):

1. those the program came with, then those the partitioner made of them,
2. comparators of top-k; clones that rewriters of sorts and reductions made,
3. fusions around gathers and scatters; reducers of dimensions that were split (`reduce_sub`),
4. bodies of fusions, numbered; then those around one bitcast,
5. loops that were widened (`wide.`), inner ones first, each its condition and its body,
6. bodies of loops into which constants were sunk (`.sunk`), outer ones first,
7. copies of computations that two calls would share otherwise,
8. computations of asynchronous operations.

The bodies of fusions in a loop are cloned together with the loop's body, just before it.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from hlomem.analysis.creation_order import (
    PARTITIONED,
    derivation_priorities,
    in_order_of_parameters,
    is_derived,
    place_in_program,
    split_number,
)

if TYPE_CHECKING:
    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction

_TOP_K = "compare-greater-than"
_SPLIT_REDUCER = ".reduce_sub_computation"
_SUNK = ".sunk"
_WIDENED = re.compile(r"^wide\.")
_BITCAST_FUSION = "bitcast_fusion"
_COPY_FUSION = "copy_fusion"


def tpu_creation_order(call_graph: CallGraph) -> list[HloComputation]:
    """The computations of a module, the oldest first."""
    computations = call_graph.module.computations
    widened, sunk = _remade_for_loops(call_graph)
    asynchronous = [each for each in computations if _is_asynchronous(each, call_graph)]
    placed = {*widened, *sunk, *asynchronous}
    flattened = [each for each in computations if _is_flattened(each, placed, call_graph)]
    placed.update(flattened)
    late_fused = [
        each
        for each in computations
        if call_graph.is_fused(each)
        and each not in placed
        and (each.name.startswith(_COPY_FUSION) or _is_called_by(each, placed, call_graph))
    ]
    late_fused.sort(key=_number)
    placed.update(late_fused)
    own: list[HloComputation] = []
    partitioned: list[HloComputation] = []
    derived: list[HloComputation] = []
    reducers: list[HloComputation] = []
    late_reducers: list[HloComputation] = []
    fused: list[HloComputation] = []
    for computation in computations:
        if computation in placed:
            continue
        name = computation.name
        if call_graph.is_fused(computation):
            fused.append(computation)
        elif _SPLIT_REDUCER in name:
            is_late = _reduces_exchanged(computation, call_graph)
            (late_reducers if is_late else reducers).append(computation)
        elif name.startswith(_TOP_K) or is_derived(computation, call_graph):
            derived.append(computation)
        elif name.endswith(PARTITIONED):
            partitioned.append(computation)
        else:
            own.append(computation)
    own.sort(key=place_in_program)
    early_fused = _made_before_fusion(fused, call_graph)
    fused = [each for each in fused if each not in early_fused]
    reducers.sort(key=lambda each: split_number(each.name.removesuffix(_SPLIT_REDUCER))[1])
    caller_of = {
        callee: caller for caller, callees in call_graph.callees.items() for callee in callees
    }
    fused.sort(
        key=lambda each: (
            each.name.startswith(_BITCAST_FUSION),
            _fusion_number(each, caller_of, call_graph),
        )
    )
    partitioned = in_order_of_parameters(
        partitioned, dict.fromkeys(partitioned, (0, 0)), call_graph
    )
    priorities = derivation_priorities(derived, call_graph, rewrites_reductions_last=False)
    derived = in_order_of_parameters(derived, priorities, call_graph)
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
        *late_fused,
        *asynchronous,
    ]


def _loops_by_computation(call_graph: CallGraph) -> list[list[HloInstruction]]:
    """The loops of each computation by number; callees come before callers."""
    loops: list[list[HloInstruction]] = []
    for computation in call_graph.module.computations:
        if not call_graph.is_fused(computation):
            here = [each for each in computation.instructions if each.opcode == "while"]
            loops.append(sorted(here, key=lambda loop: split_number(loop.name)[1]))
    return loops


def _remade_for_loops(
    call_graph: CallGraph,
) -> tuple[dict[HloComputation, None], dict[HloComputation, None]]:
    """What was made when loops were widened, and when constants were sunk into them."""
    widened: dict[HloComputation, None] = {}
    sunk: dict[HloComputation, None] = {}
    by_computation = _loops_by_computation(call_graph)
    for loop in itertools.chain.from_iterable(by_computation):
        for computation in reversed(loop.called_computations):
            if _WIDENED.match(computation.name) and not computation.name.endswith(_SUNK):
                widened.update(_with_fusions(computation, call_graph))
    for loop in itertools.chain.from_iterable(reversed(by_computation)):
        for computation in reversed(loop.called_computations):
            if computation.name.endswith(_SUNK):
                sunk.update(_with_fusions(computation, call_graph))
    return widened, sunk


def _with_fusions(
    computation: HloComputation, call_graph: CallGraph
) -> dict[HloComputation, None]:
    """A computation after the bodies of fusions that were cloned with it."""
    made: dict[HloComputation, None] = {}
    for instruction in call_graph.post_order(computation):
        if instruction.opcode == "fusion":
            _add_clones(instruction.called_computations[0], call_graph, made)
    made[computation] = None
    return made


def _add_clones(
    body: HloComputation, call_graph: CallGraph, made: dict[HloComputation, None]
) -> None:
    for callee in call_graph.callees[body]:
        if call_graph.is_fused(callee):
            _add_clones(callee, call_graph, made)
    if ".clone" in body.name:
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
    return _is_called_by(computation, late, call_graph)


def _is_called_by(
    computation: HloComputation, callers: set[HloComputation], call_graph: CallGraph
) -> bool:
    return any(computation in call_graph.callees[caller] for caller in callers)


def _reduces_exchanged(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether it reduces what devices have exchanged, which is split after fusion."""
    sites = call_graph.callsites[computation]
    return any(site.operands[0].opcode == "all-to-all" for site in sites)


def _made_before_fusion(
    fused: list[HloComputation], call_graph: CallGraph
) -> dict[HloComputation, None]:
    """The fusions made around gathers and scatters before any other, which have the first numbers."""
    early: dict[HloComputation, None] = {}
    for computation in sorted(fused, key=_number):
        if ".clone" in computation.name or computation.name.startswith(_BITCAST_FUSION):
            continue
        if not _moves_by_index(computation, call_graph):
            break
        early[computation] = None
    return early


def _moves_by_index(computation: HloComputation, call_graph: CallGraph) -> bool:
    return not call_graph.bodies[computation].opcodes.isdisjoint(("gather", "scatter"))


def _fusion_number(
    computation: HloComputation,
    caller_of: dict[HloComputation, HloComputation],
    call_graph: CallGraph,
) -> int:
    """The number of a fusion; a clone was made together with the others of its caller."""
    if ".clone" not in computation.name or computation not in caller_of:
        return _number(computation)
    caller = caller_of[computation]
    if call_graph.is_fused(caller):
        return _fusion_number(caller, caller_of, call_graph)
    siblings = [
        _number(each)
        for each in call_graph.callees[caller]
        if call_graph.is_fused(each) and ".clone" not in each.name
    ]
    return min(siblings, default=-1)


def _number(computation: HloComputation) -> int:
    return split_number(computation.name)[1]
