"""In which order libtpu made the computations of a module.

As `hlomem.history.computations.creation`, but for the passes of the TPU compiler, whose order the
pass dumps of libtpu show (docs/tpu-rules.md):

1. those the program came with; reducers and comparators that expanders of linear algebra build
   (xla/hlo/builder/lib: CreateScalarComputation, CreateScalarComparisonComputation); those the
   partitioner made,
2. comparators of top-k; clones that simplifiers of loops and rewriters of sorts and reductions
   made; copies of what several operations share,
3. fusions around gathers and scatters; reducers of decomposed collectives; reducers of dimensions
   that were split (`reduce_sub`); comparators for sorted scatters; reducers of bits,
4. bodies of fusions, numbered; then those around one bitcast,
5. loops that were widened (`wide.`), inner ones first, each its condition and its body,
6. bodies of loops into which constants were sunk (`.sunk`), outer ones first,
7. copies of computations that two operations share because one was copied from the other; fusions
   around asynchronous collectives and copies,
8. computations of asynchronous operations.

The bodies of fusions in a loop are cloned together with the loop's body, just before it.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from hlomem.history.computations.creation import (
    first_calls,
    first_parameter,
    in_order_of_parameters,
    is_derived,
    place_in_program,
)
from hlomem.history.names import (
    CLONE,
    PARTITIONED,
    TOP_K_COMPARATOR,
    number_of,
    split_number,
)
from hlomem.hlo.ir import MAIN_THREAD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.history.computations.creation import Priority
    from hlomem.hlo.ir import HloComputation, HloInstruction

_FIRST_CLONE = re.compile(r"[^.]*(?:\.(?!clone)[^.]*)*\.clone")
_BUILT = re.compile(r"(?:add|mul|ge|max|min|and|or)_[A-Z0-9]+|and|or|compare-less-than")
_SORT_COMPARATOR = "compare-value-and-index"  # merges the parts of a partitioned top-k
_MADE_BEFORE_FUSION = frozenset({"compare", "reduce_or_computation"})
"""Comparators for sorted scatters, reducers of bits."""
_SPLIT_REDUCER = ".reduce_sub_computation"
_SUM_OF_DOT = "scalar_add_computation"  # of a dot that became a reduction
_SUNK = ".sunk"
_WIDENED = "wide."
_BITCAST_FUSION = "bitcast_fusion"
_COPY_FUSION = "copy_fusion"


def tpu_creation_order(call_graph: CallGraph) -> list[HloComputation]:
    """The computations of a module, the oldest first."""
    late = _made_after_fusion(call_graph)
    own: list[HloComputation] = []
    built: list[HloComputation] = []
    partitioned: list[HloComputation] = []
    derived: list[HloComputation] = []
    decomposed: list[HloComputation] = []
    reducers: list[HloComputation] = []
    last: list[HloComputation] = []
    fused: list[HloComputation] = []
    for computation in call_graph.module.computations:
        name = computation.name
        if computation in late:
            continue
        if call_graph.is_fused(computation):
            fused.append(computation)
        elif _SPLIT_REDUCER in name and not _checks_indices(computation):
            reducers.append(computation)
        elif split_number(name)[0] in _MADE_BEFORE_FUSION:
            last.append(computation)
        elif _is_made_by_pass(computation, call_graph):
            derived.append(computation)
        elif _BUILT.fullmatch(split_number(name)[0]):
            built.append(computation)
        elif _is_numbered_last(computation, call_graph):
            decomposed.append(computation)
        elif name.endswith(PARTITIONED):
            partitioned.append(computation)
        else:
            own.append(computation)
    gathers = _made_before_fusion(fused, call_graph)
    return [
        *sorted(own, key=place_in_program),
        *sorted(built, key=partial(_place_in_builder, call_graph=call_graph)),
        *in_order_of_parameters(partitioned, call_graph),
        *_in_order_of_derivation(derived, call_graph),
        *gathers,
        *sorted(decomposed, key=number_of),
        *in_order_of_parameters(sorted(reducers, key=_number_of_split), call_graph),
        *sorted(last, key=lambda each: split_number(each.name)),
        *_in_order_of_fusion([each for each in fused if each not in gathers], call_graph),
        *late,
    ]


def _is_made_by_pass(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether a pass made it, by its name."""
    comparators = (TOP_K_COMPARATOR, _SORT_COMPARATOR)
    return computation.name.startswith(comparators) or is_derived(computation, call_graph)


def _is_numbered_last(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether the program cannot have come with it: its own are numbered up to the entry."""
    last = split_number(call_graph.module.entry.name.removesuffix(PARTITIONED))[1]
    return not computation.is_entry and 0 < last <= number_of(computation)


def _made_after_fusion(call_graph: CallGraph) -> dict[HloComputation, None]:
    """What was made once fusion was done."""
    computations = call_graph.module.computations
    late = dict.fromkeys(filter(partial(_reduces_exchanged, call_graph=call_graph), computations))
    late |= _remade_for_loops(call_graph)
    late |= dict.fromkeys(_flattened(call_graph))
    fused_again = [_fused_again(each, call_graph) for each in computations if each in late]
    for bodies in sorted(fused_again, key=_last_number):
        late |= bodies
    copies = [each for each in computations if each.name.startswith(_COPY_FUSION)]
    late |= dict.fromkeys(sorted(copies, key=number_of))
    asynchronous = [each for each in computations if _is_asynchronous(each, call_graph)]
    for computation in sorted(asynchronous, key=lambda each: _number_inside(each, call_graph)):
        late |= _with_all_callees(computation, call_graph)
    return late


def _number_inside(computation: HloComputation, call_graph: CallGraph) -> int:
    """The number of what runs asynchronously, where it is more than one instruction."""
    callees = [each for each in call_graph.callees[computation] if not call_graph.is_fused(each)]
    return number_of(callees[0] if callees else computation)


def _in_order_of_derivation(
    derived: list[HloComputation], call_graph: CallGraph
) -> list[HloComputation]:
    """Comparators of top-k, what expanders made, then what the rewriters did."""
    priorities = _derivation_priorities(derived, call_graph)
    for each in derived:
        stage = (
            _is_flattened_early(each, call_graph),
            each.name.startswith(_SORT_COMPARATOR),
            not _checks_indices(each),
            split_number(each.name)[0] != _SUM_OF_DOT,
        )
        priorities[each] = (*stage, *priorities[each])
    derived = in_order_of_parameters(derived, call_graph, priorities)
    return sorted(derived, key=lambda each: not each.name.startswith(TOP_K_COMPARATOR))


def _derivation_priorities(
    computations: list[HloComputation], call_graph: CallGraph
) -> dict[HloComputation, Priority]:
    """When passes made computations as far as names do not tell: by pass, then by first call.

    Passes in the order of the pipeline: all-reduce promotion; float normalization, whose clones
    convert, and flattening of the call graph, whose clones are cloned again; the rewriters of
    reductions, and others that clone; expanders, which make loops; the rewriter of top-k, whose
    clones custom calls call.
    """
    by_name = call_graph.module.computation_by_name
    encounter = first_calls(call_graph)

    def pass_number(computation: HloComputation) -> int:
        if "_promoted" in computation.name:
            return 0
        if any(site.opcode == "custom-call" for site in call_graph.callsites[computation]):
            return 4
        if CLONE not in computation.name:
            return 3
        is_first_clone = _FIRST_CLONE.fullmatch(computation.name) is not None
        converts = any(each.opcode == "convert" for each in computation.instructions)
        was_cloned = computation.name + CLONE in by_name
        return 1 if is_first_clone and (converts or was_cloned) else 2

    return {each: (pass_number(each), encounter.get(each, 0)) for each in computations}


def _checks_indices(computation: HloComputation) -> bool:
    """Whether an expander of gathers or scatters made it (`CheckIndexValidity`)."""
    return _SPLIT_REDUCER in computation.name and computation.root.opcode == "and"


def _is_flattened_early(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether the first flattening of the call graph made it, which copies what stays in use.

    The partitioner does so, too, for reductions across devices.
    """
    sites = call_graph.callsites[computation]
    is_partitioned = any(site.opcode == "all-reduce" for site in sites)
    original = computation.name.rpartition(CLONE)[0]
    return original in call_graph.module.computation_by_name and not is_partitioned


def _in_order_of_fusion(fused: list[HloComputation], call_graph: CallGraph) -> list[HloComputation]:
    """By number, those around a bitcast last."""
    caller_of = {
        callee: caller for caller, callees in call_graph.callees.items() for callee in callees
    }
    return sorted(
        fused,
        key=lambda each: (
            each.name.startswith(_BITCAST_FUSION),
            _fusion_number(each, caller_of, call_graph),
        ),
    )


def _place_in_builder(computation: HloComputation, call_graph: CallGraph) -> tuple[bool, int]:
    """By number; the builder's start at 2, and a lower one replaces one that an older one had."""
    number_of_parameter = split_number(first_parameter(computation, call_graph))[1]
    return number_of_parameter < _FIRST_BUILT, number_of(computation)


_FIRST_BUILT = 2


def _number_of_split(reducer: HloComputation) -> int:
    return split_number(reducer.name.removesuffix(_SPLIT_REDUCER))[1]


def _loops_of(computations: Iterable[HloComputation]) -> list[HloInstruction]:
    """The loops of computations one after the other, those of one by number."""
    loops: list[HloInstruction] = []
    for computation in computations:
        here = [each for each in computation.instructions if each.opcode == "while"]
        loops += sorted(here, key=number_of)
    return loops


def _places_in_fusion(call_graph: CallGraph) -> dict[HloComputation, int]:
    """The number of the first fusion in each computation; one after its callees has theirs."""
    place: dict[HloComputation, int] = {}
    for computation in call_graph.module.computations:
        if call_graph.is_fused(computation):
            continue
        callees = call_graph.callees[computation]
        numbers = [_original_number(each) for each in callees if call_graph.is_fused(each)]
        after = [place[each] for each in callees if each in place]
        place[computation] = max(min(numbers, default=-1), *after, -1)
    return place


def _original_number(body: HloComputation) -> int:
    """The number of the body of a fusion, or of the one it was cloned from."""
    return split_number(body.name.partition(CLONE)[0])[1]


def _remade_for_loops(call_graph: CallGraph) -> dict[HloComputation, None]:
    """What was made when loops were widened, then when constants were sunk into them."""
    made: dict[HloComputation, None] = {}
    place = _places_in_fusion(call_graph)
    for loop in _loops_of(sorted(place, key=place.__getitem__)):
        if loop.called_computations[0].name.endswith(CLONE):
            continue  # as the simplifier of loops left it
        for computation in reversed(loop.called_computations):
            if computation.name.startswith(_WIDENED) and not computation.name.endswith(_SUNK):
                made |= _with_clones(computation, call_graph)
    for loop in _loops_of(reversed(place)):
        for computation in reversed(loop.called_computations):
            if computation.name.endswith(_SUNK):
                made |= _with_clones(computation, call_graph)
    return made


def _with_clones(computation: HloComputation, call_graph: CallGraph) -> dict[HloComputation, None]:
    """A computation after what was cloned with it: bodies of fusions, and what was before."""
    made: dict[HloComputation, None] = {}
    for instruction in call_graph.post_order(computation):
        for callee in instruction.called_computations:
            if instruction.opcode == "fusion" and CLONE in callee.name:
                made |= _with_nested(callee, call_graph)
            elif _is_clone_of_clone(callee, call_graph):
                made[callee] = None
    made[computation] = None
    return made


def _fused_again(computation: HloComputation, call_graph: CallGraph) -> dict[HloComputation, None]:
    """The bodies of fusions in a loop that were made after it: around asynchronous collectives."""
    new = [
        each
        for each in call_graph.callees[computation]
        if call_graph.is_fused(each) and CLONE not in each.name
    ]
    made: dict[HloComputation, None] = {}
    for body in sorted(new, key=number_of):
        made |= _with_nested(body, call_graph)
    return made


def _last_number(bodies: dict[HloComputation, None]) -> int:
    return max(map(number_of, bodies), default=-1)


def _with_nested(body: HloComputation, call_graph: CallGraph) -> dict[HloComputation, None]:
    """The body of a fusion after those of the fusions in it, and what was cloned with it."""
    made: dict[HloComputation, None] = {}
    for callee in call_graph.callees[body]:
        if call_graph.is_fused(callee) and not callee.name.startswith(_COPY_FUSION):
            made |= _with_nested(callee, call_graph)
        elif _is_clone_of_clone(callee, call_graph):
            made[callee] = None
    made[body] = None
    return made


def _is_clone_of_clone(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether it was cloned again and again with the loop it is used in."""
    is_plain = call_graph.is_embedded(computation) and not call_graph.is_fused(computation)
    return is_plain and computation.name.count(CLONE) > 1


def _with_all_callees(
    computation: HloComputation, call_graph: CallGraph
) -> dict[HloComputation, None]:
    """What runs asynchronously after all that it calls.

    What runs on a sparse core was moved into a module of its own and back: its reducers are copies.
    """
    made: dict[HloComputation, None] = {}
    is_body = call_graph.is_fused(computation)
    for callee in call_graph.callees[computation]:
        is_copy = callee.execution_thread != MAIN_THREAD
        if not is_body or call_graph.is_fused(callee) or is_copy:
            made |= _with_all_callees(callee, call_graph)
    made[computation] = None
    return made


def _is_asynchronous(computation: HloComputation, call_graph: CallGraph) -> bool:
    sites = call_graph.callsites[computation]
    return bool(sites) and sites[0].opcode == "async-start"


def _flattened(call_graph: CallGraph) -> list[HloComputation]:
    """What was copied because the operation that applies it had been copied.

    The call graph is flattened twice. What operations of the program share is copied early; what
    is shared because fusion or a pass for loops copied an operation is copied after fusion.
    """
    by_name = call_graph.module.computation_by_name
    copies_of: dict[str, list[HloComputation]] = {}
    for computation in call_graph.module.computations:
        original = computation.name.rpartition(CLONE)[0]
        if original in by_name and not call_graph.is_fused(computation):
            copies_of.setdefault(original, []).append(computation)
    flattened: list[HloComputation] = []
    for name in sorted(copies_of, key=lambda each: by_name[each].index):
        first = _applying(by_name[name], call_graph)
        flattened += [
            copy
            for copy in sorted(copies_of[name], key=number_of)
            if _is_copied(first, _applying(copy, call_graph), call_graph)
        ]
    return flattened


def _applying(applied: HloComputation, call_graph: CallGraph) -> HloInstruction | None:
    """The operation that applies a computation, in a fused body or outside."""
    caller = _caller(applied, call_graph)
    if caller is None:
        return None
    return next(each for each in caller.instructions if applied in each.called_computations)


def _caller(called: HloComputation, call_graph: CallGraph) -> HloComputation | None:
    return next((each for each, callees in call_graph.callees.items() if called in callees), None)


def _is_copied(
    one: HloInstruction | None, other: HloInstruction | None, call_graph: CallGraph
) -> bool:
    """Whether one operation is a copy of the other.

    Both come from the same place in the program then, but a line of the program may also make the
    same operation several times. Passes copy it to another computation; only a reduce-window, which
    fusion makes of a reduction, may be copied within one.
    """
    if one is None or other is None:
        return False
    origin = one.attributes.get("metadata")
    if origin is None or origin != other.attributes.get("metadata"):
        return False
    if one.opcode == "reduce-window":
        return True
    return _place(one.parent, call_graph) is not _place(other.parent, call_graph)


def _place(computation: HloComputation, call_graph: CallGraph) -> HloComputation:
    """The computation that a fused body was cut out of."""
    caller = _caller(computation, call_graph)
    if caller is None or not call_graph.is_fused(computation):
        return computation
    return _place(caller, call_graph)


def _reduces_exchanged(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether it reduces what devices have exchanged, which is split after fusion."""
    sites = call_graph.callsites[computation]
    return _SPLIT_REDUCER in computation.name and any(
        site.operands[0].opcode == "all-to-all" for site in sites
    )


def _made_before_fusion(
    fused: list[HloComputation], call_graph: CallGraph
) -> dict[HloComputation, None]:
    """The fusions around gathers and scatters, made before all others and so numbered first."""
    early: dict[HloComputation, None] = {}
    for computation in sorted(fused, key=number_of):
        if CLONE in computation.name or computation.name.startswith(_BITCAST_FUSION):
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
    if CLONE not in computation.name or computation not in caller_of:
        return number_of(computation)
    caller = caller_of[computation]
    if call_graph.is_fused(caller):
        return _fusion_number(caller, caller_of, call_graph)
    siblings = [
        number_of(each)
        for each in call_graph.callees[caller]
        if call_graph.is_fused(each) and CLONE not in each.name
    ]
    return min(siblings, default=-1)
