"""The passes of the CPU compiler that make computations, in the order of its pipeline.

Mirrors `service/cpu/cpu_compiler.cc: RunHloPassesThroughLayoutAssn` and
`RunHloPassesAfterLayoutAssn`. `CPU_PASSES` is the table; below it stands what its rows ask.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from hlomem.history.computations import engine, marks
from hlomem.history.computations.engine import Claims, Mark, Pass, Priority, stage, when_met, where
from hlomem.history.computations.partitioner import is_cloned_for_partitions, when_partitioned
from hlomem.history.evidence import Trace, Traces, place_by_name
from hlomem.history.names import CLONE, SUNK, WIDENED, flow_name, number_of
from hlomem.history.rules import cited, observed
from hlomem.history.tables import LostCalls, Tables

if TYPE_CHECKING:
    from collections.abc import Iterable


_CALLS_OF_FUNCTION = 2
"""Into a function, and out of it: what it calls is called again where it was inlined."""


def count_lost_calls(traces: Traces) -> int:
    """The calls of functions that were inlined, and of loops before passes replaced them.

    `xla/online_topsort.h` counts every call it was ever told of. The program numbers all its
    computations, and the entry comes last.
    """
    kept = [trace.number for trace in traces.values() if marks.is_own(trace)]
    inlined = max(traces.entry.number - min(kept, default=0) + 1 - len(kept), 0)
    callsites = traces.call_graph.callsites
    of_loops = {
        computation: None
        for computation, sites in callsites.items()
        for site in sites
        if site.opcode == "while"
    }
    remade = sum(_lost_by_loop(traces[computation]) for computation in of_loops)
    return _CALLS_OF_FUNCTION * inlined + remade


def _lost_by_loop(trace: Trace) -> int:
    """The calls of a loop's computation, once for each time it was rebuilt."""
    times = sum(trace.name.count(mark) for mark in (CLONE, SUNK, WIDENED))
    return times * (1 + len(trace.callees))


_WINDOW = "reduce-window"
_SELECTED = ".reduce_window"
_FIRST_FLATTENING = "FlattenCallGraph, first"
_APPROXIMATE_TOP_K = "top_k_"
"""Begins the names of JAX's comparators for `approx_top_k`, whose custom call goes."""
_REWRITTEN_TO = frozenset({_WINDOW, "map", "reduce"})

# The program's own.


def place_in_program(trace: Trace, _claims: Claims) -> Priority:
    """As the program numbers its computations."""
    return trace.place_in_program


# Derived from others.


def _is_applied_by(trace: Trace, *opcodes: str) -> bool:
    return trace.application is not None and trace.application.opcode in opcodes


def _is_cloned_for_top_k(trace: Trace) -> bool:
    return marks.is_top_k_comparator(trace) and trace.is_clone


def _when_flattened(clone: Trace, claims: Claims) -> Priority:
    """By the function that is called again, by the call, then as the pass goes through it."""
    own = clone.original_name.partition(CLONE)[0]
    call = clone.original_name.count(CLONE), number_of(clone.computation)
    function = claims.once(_functions)[own]
    place = claims.once(_places_in_functions)[own]
    return *function, *call, place, *when_met(clone, claims)


def _functions(claims: Claims) -> dict[str, tuple[int, int]]:
    """The beginning of the function that calls each: what it calls was cloned as often."""
    ends: dict[str, set[str]] = {}
    for trace in claims.made_by(_FIRST_FLATTENING):
        own, _, end = trace.name.partition(CLONE)
        ends.setdefault(own, set()).add(end)
    start_of: dict[frozenset[str], tuple[int, int]] = {}
    for own in sorted(ends, key=place_by_name):
        start_of.setdefault(frozenset(ends[own]), place_by_name(own))
    return {own: start_of[frozenset(end)] for own, end in ends.items()}


def _places_in_functions(claims: Claims) -> dict[str, int]:
    """The order in which the pass copies a function's callees, breadth first, the last first."""
    called: dict[str, dict[str, None]] = {}
    for trace in claims.made_by(_FIRST_FLATTENING):
        caller = flow_name(trace.site_in_flow[0].name).partition(CLONE)[0]
        called.setdefault(caller, {})[trace.name.partition(CLONE)[0]] = None
    inside = {own for owns in called.values() for own in owns}
    places: dict[str, int] = {}
    pending = [caller for caller in called if caller not in inside]
    while pending:
        owns = sorted(called.pop(pending.pop(), ()), key=place_by_name)
        for own in owns:
            places.setdefault(own, len(places))
        pending += owns
    for own in sorted(inside - places.keys(), key=place_by_name):
        places[own] = len(places)
    return places


def _is_normalized(trace: Trace) -> bool:
    """True if it is a first clone that converts, or was made to; collectives keep the original."""
    if not trace.is_clone or CLONE in trace.original_name:
        return False
    is_replaced = trace.module.is_partitioned and trace.original is None
    return is_replaced or trace.converts


def _when_normalized(trace: Trace, claims: Claims) -> Priority:
    place = place_by_name(trace.original_name) if trace.module.is_partitioned else ()
    return *place, *when_met(trace, claims)


def _is_sum_of_dot(trace: Trace) -> bool:
    return _is_made_anew(trace) and trace.name.startswith("scalar_add_computation")


def _is_made_anew(trace: Trace) -> bool:
    return trace.is_derived and not trace.is_clone


def _is_selected(trace: Trace) -> bool:
    """True if it selects for a select-and-scatter, in a window of its own."""
    return trace.name.endswith(_SELECTED)


def _is_loop_rewritten(trace: Trace) -> bool:
    """True if it is a loop's, and a clone of what the first flattening does not leave alone."""
    is_cloned_again = CLONE in trace.original_name or trace.name.startswith(WIDENED)
    return is_cloned_again and trace.is_clone and _is_applied_by(trace, "while")


def _when_loop_rewritten(trace: Trace, claims: Claims) -> Priority:
    """Loop by loop."""
    body = trace.module[trace.sites[0].called_computations[0]]
    return trace.loop_number, *when_met(body, claims)


def _is_doubled(clone: Trace) -> bool:
    """True if the original got its second caller only after the first flattening.

    A pass made it, or a reduction became several: with windows reduced first, or, where it has
    several results, one for each partition's part.
    """
    original = clone.original
    if original is None:
        return _is_cloned_for_top_k(clone) or clone.name.startswith(_APPROXIMATE_TOP_K)
    is_partial = clone.module.is_partitioned and clone.computation.root.shape.is_tuple
    is_made_by_pass = original.is_derived and not original.is_clone
    return is_partial or is_made_by_pass or _is_rewritten(clone)


def _is_rewritten(clone: Trace) -> bool:
    """True if a rewriter put both callers, the first a window, instead of one."""
    original = clone.original
    if original is None or clone.is_cloned_again or original.application is None:
        return False
    is_window = original.application.opcode == _WINDOW
    is_new = is_window and not original.application.op_name
    return is_new and _is_applied_by(clone, *_REWRITTEN_TO)


def _is_rewritten_window(clone: Trace) -> bool:
    return _is_rewritten(clone) and not _is_applied_by(clone, "reduce")


def _when_flattened_last(clone: Trace, claims: Claims) -> Priority:
    """By the age of the original: the program's own first."""
    original = clone.original
    if original is None:
        if _is_cloned_for_top_k(clone):
            return _TOP_K_AGE, *when_met(clone, claims)
        return _OWN_AGE, *place_by_name(clone.original_name), *when_met(clone, claims)
    if original.is_derived:
        return *claims.priority(original), *when_met(clone, claims)
    return _OWN_AGE, *original.place_in_program, *when_met(clone, claims)


_OWN_AGE, _TOP_K_AGE = -1, 0


def _sort_derived(made: list[Trace], claims: Claims) -> list[Trace]:
    """By parameters' numbers; what is not partitioned hurries from pass to pass only."""
    is_partitioned = claims.traces.is_partitioned
    return engine.by_parameter_numbers(made, claims, advance_whole_priority=is_partitioned)


# Bodies of fusions, and calls.


def _sort_wrapped(walked: list[Trace], _claims: Claims) -> list[Trace]:
    """By the number of the first parameter; what has none stays before the one after it.

    The walk went through the program as it was then: dead instructions, gone since, came first.
    """
    groups: list[tuple[int, list[Trace]]] = []
    group: list[Trace] = []
    for body in walked:
        group.append(body)
        if body.parameter is not None:
            groups.append((body.parameter_number, group))
            group = []
    groups.sort(key=lambda entry: entry[0])
    return [*itertools.chain.from_iterable(bodies for _, bodies in groups), *group]


def _find_outlined(claims: Claims) -> Iterable[Trace]:
    """Computations that calls were made for, by age, each after the bodies cloned into it."""
    made_for_calls = [
        trace for trace in claims.free if not trace.is_fused and trace.is_made_for_call
    ]
    for trace in engine.sort_by_parameter_numbers(made_for_calls):
        yield from (callee for callee in trace.callees if callee.is_fused and callee.is_clone)
        yield trace


_SPMD = "service/spmd/spmd_partitioner.cc"
_PIPELINE = "service/cpu/cpu_compiler.cc: RunHloPassesThroughLayoutAssn"
_SIMPLIFIERS = "hlo/transforms/simplifiers"
_NEW, _OLD = "jaxlib-0.12.0.1/cpu", "jaxlib-0.9.0/cpu"

_DERIVED = stage(
    _sort_derived,
    Pass(
        "SpmdPartitioner: clones",
        observed(
            f"{_SPMD}: SpmdPartitioningVisitor; channels are counted as they are made",
            f"{_NEW}/partitioned_embedding",
        ),
        mark=Mark(8, where(is_cloned_for_partitions), when_partitioned),
    ),
    Pass(
        "TopkDecomposer",
        cited(
            f"{_PIPELINE}; hlo/builder/lib/comparators.cc: CreateScalarGtComputation",
            f"{_NEW}/top_k_loop",
        ),
        mark=Mark(5, where(marks.is_first_top_k_comparator), when_met),
    ),
    Pass(
        _FIRST_FLATTENING,
        cited(f"{_SIMPLIFIERS}/flatten_call_graph.cc: RunImpl", f"{_NEW}/functions_twice"),
        mark=Mark(14, where(marks.is_clone), _when_flattened),
    ),
    Pass(
        "AllReducePromotion",
        cited("service/all_reduce_promotion.cc: RunImpl", f"{_NEW}/partitioned_embedding"),
        mark=Mark(6, where(marks.is_promoted), when_met),
    ),
    Pass(
        "FloatNormalization",
        cited(
            f"{_SIMPLIFIERS}/float_normalization.cc: ConvertCalledComputations",
            f"{_NEW}/partitioned_embedding",
        ),
        mark=Mark(12, where(_is_normalized), _when_normalized),
    ),
    Pass(
        "AlgebraicSimplifier",
        cited(
            f"{_SIMPLIFIERS}/algebraic_simplifier.cc: GetOrCreateScalarAddComputation",
            f"{_NEW}/made_by_passes",
        ),
        mark=Mark(7, where(_is_sum_of_dot), when_met),
    ),
    Pass(
        "expanders",
        cited(
            f"{_PIPELINE}; service/hlo_creation_utils.cc: MakeBinaryScalarComputation",
            f"{_NEW}/made_by_passes",
        ),
        mark=Mark(7, where(_is_made_anew), when_met),
    ),
    Pass(
        "SelectAndScatterExpander",
        cited(
            f"{_PIPELINE}; service/select_and_scatter_expander.cc: ExpandInstruction",
            f"{_NEW}/pooling_gradient",
        ),
        mark=Mark(6, where(_is_selected), when_met),
    ),
    Pass(
        "WhileLoopSimplifier",
        observed(
            "service/while_loop_simplifier.cc: RunImpl; names (`.clone.clone`, `wide.`) of"
            " loops and numbers in their conditions, jaxlib 0.7.1 to 0.12.0.1",
            "jaxlib-0.7.1/cpu/solve",
        ),
        mark=Mark(11, where(_is_loop_rewritten), _when_loop_rewritten),
    ),
    Pass(
        "TopkRewriter, once",
        observed("ids of jaxlib 0.4.13 to 0.9.0", "jaxlib-0.7.0/cpu/sort_argsort_topk"),
        mark=Mark(4, where(_is_cloned_for_top_k), when_met),
        until=(0, 9, 0, 1),
        option="rewrites_reductions_last",
    ),
    Pass(
        "ReduceWindowRewriter, once",
        observed("ids of jaxlib 0.4.13 to 0.9.0", f"{_OLD}/narrow_reductions"),
        mark=Mark(9, where(_is_rewritten_window), when_met),
        until=(0, 9, 0, 1),
        option="rewrites_reductions_last",
    ),
    Pass(
        "FlattenCallGraph, last",
        cited(
            "service/cpu/cpu_compiler.cc: RunHloPassesAfterLayoutAssn", f"{_NEW}/g_cholesky_solve"
        ),
        mark=Mark(10, where(_is_doubled), _when_flattened_last),
    ),
)

CPU_PASSES = (
    stage(
        engine.by_priority,
        Pass(
            "the program",
            cited("service/name_uniquer.cc: GetUniqueName", f"{_NEW}/functions_twice"),
            mark=Mark(4, where(marks.is_own), place_in_program),
        ),
    ),
    stage(
        engine.by_parameter_numbers,
        Pass(
            "SpmdPartitioner",
            cited(f"{_SPMD}: SpmdPartitioningVisitor (`_spmd`)", f"{_NEW}/sharded_loops"),
            mark=Mark(15, where(marks.is_partitioned)),
        ),
    ),
    _DERIVED,
    stage(
        engine.by_number,
        Pass(
            "CpuInstructionFusion",
            cited(
                "service/cpu/cpu_compiler.cc: RunHloPassesAfterLayoutAssn", f"{_NEW}/made_by_passes"
            ),
            mark=Mark(3, where(marks.is_fused)),
        ),
    ),
    stage(
        _sort_wrapped,
        Pass(
            "FusionWrapper",
            cited("codegen/emitters/fusion_wrapper_base.cc: RunImpl", f"{_NEW}/cond_in_loop"),
            mark=Mark(2, marks.find_wrapped),
        ),
    ),
    stage(
        engine.as_found,
        Pass(
            "calls",
            cited(
                "service/cpu/parallel_task_assignment.cc: AssignParallelTasksHelper,"
                " small_while_loop_hoisting_pass.cc: RunImpl",
                f"{_NEW}/qr_loop",
            ),
            mark=Mark(1, _find_outlined),
        ),
    ),
)


TABLES = Tables(
    stages=CPU_PASSES,
    lost_calls=(
        LostCalls(
            "calls that are gone",
            cited("online_topsort.h: UpdateDelta", "jaxlib-0.12.0.1/cpu/deep_loops"),
            count=count_lost_calls,
        ),
    ),
)
