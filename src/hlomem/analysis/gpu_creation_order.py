"""In which order the GPU compiler made the computations of a module, read off their names.

As `creation_order.py`, for the passes of `service/gpu/gpu_compiler.cc`:

1. those the program came with, numbered as they came; those the partitioner made of them,
2. clones for the collectives of the partitioner, as a walk through the program meets them,
3. what expanders and rewriters made: comparators, windows, loops with other bodies; then
   comparators of stable sorts,
4. clones of what is called twice (`FlattenCallGraph`), by what they are clones of: what the
   program came with, then what passes made or cloned before, in the order in which they did,
5. sums of products that were split (`SplitkRewriter`),
6. bodies around products and softmaxes (`GemmFusion`, `SoftmaxRewriterTriton`), numbered by their
   parameters,
7. clones that convert (`FloatNormalization`), by what the program came with,
8. bodies around sorts and the indices they take along (`SortIotaFusion`),
9. everything else: bodies of fusions, bodies around one instruction, asynchronous computations and
   rematerialized bodies. All their parameters are called `param_0`, and `NameUniquer` numbers them
   as they are made, whichever pass does it. `RenameFusions` leaves no other trace.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from hlomem.analysis.computation_replay import sorted_incrementally
from hlomem.analysis.creation_order import (
    calls_with_fusions,
    first_calls,
    first_parameter,
    in_order_of_parameters,
    is_derived,
    place_in_program,
    wrapped_bodies,
)
from hlomem.analysis.names import CLONE, PARTITIONED, TOP_K_COMPARATOR, number_of, split_number
from hlomem.hlo.opcodes import COLLECTIVES
from hlomem.hlo.shape import ElementType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.analysis.creation_order import Priority
    from hlomem.hlo.ir import HloComputation

_SPLIT_SUM = re.compile(r"dot(?:\.[0-9]+)?\.reduce_sub_computation", re.ASCII)
_MADE_BEFORE_FUSION = ("gemm_fusion_", "triton_softmax_")
_PRODUCT_SUM = "scalar_add_computation"
_REMATERIALIZED = ".remat"
_NUMBERED_PARAMETER = "param_0"
_CHANNEL = re.compile(r", channel_id=([0-9]{1,18})")
_MADE_BY_PASS = 1 << 62
_REGION = re.compile(r"(?:region_([0-9]+)|[a-z_]+)\.([0-9]+)", re.ASCII)
_NEVER = float("inf")

Stamped = list[tuple[float, "HloComputation"]]
"""Computations with the time they were made at, as their parameters are numbered."""


def gpu_creation_order(call_graph: CallGraph) -> list[HloComputation]:
    """The computations of a module, the oldest first."""
    early: list[HloComputation] = []
    converted: list[HloComputation] = []
    products: list[HloComputation] = []
    sorts: list[HloComputation] = []
    fused: list[HloComputation] = []
    numbered = dict.fromkeys([*wrapped_bodies(call_graph), *_asynchronous(call_graph)])
    for computation in call_graph.module.computations:
        if computation in numbered:
            continue
        if not call_graph.is_fused(computation):
            (converted if _is_converted(computation, call_graph) else early).append(computation)
        elif computation.name.startswith(_MADE_BEFORE_FUSION) and not _is_rematerialized(
            computation, call_graph
        ):
            products.append(computation)
        elif _is_sort_with_iota(computation, call_graph):
            sorts.append(computation)
        else:
            fused.append(computation)
    for each_kind in (products, sorts):
        each_kind.sort(key=lambda each: _age(each, call_graph))
    converted.sort(key=lambda each: (*_region(each.name), _age(each, call_graph)))
    before_fusion = [*_made_early(early, call_graph), *products, *converted, *sorts]
    late = _stamp_numbered(list(numbered), call_graph)
    roughly = [*before_fusion, *fused, *numbered]
    order = sorted_incrementally(roughly, call_graph, len(before_fusion))
    stamped = [*_stamp_fused(fused, order, late, call_graph), *late]
    stamped.sort(key=lambda entry: entry[0])
    return [*before_fusion, *(computation for _, computation in stamped)]


def _age(computation: HloComputation, call_graph: CallGraph) -> int:
    return split_number(first_parameter(computation, call_graph))[1]


def _time(body: HloComputation, call_graph: CallGraph) -> int | None:
    """When a body got its first parameter, None where that is not known."""
    base, number = split_number(first_parameter(body, call_graph))
    return number if base == _NUMBERED_PARAMETER else None


def _is_rematerialized(body: HloComputation, call_graph: CallGraph) -> bool:
    return any(_REMATERIALIZED in site.name for site in call_graph.callsites[body])


def _asynchronous(call_graph: CallGraph) -> list[HloComputation]:
    """The computations of asynchronous operations, and the bodies that were cloned into them."""
    found: list[HloComputation] = []
    for computation, sites in call_graph.callsites.items():
        if any(site.opcode == "async-start" for site in sites):
            found += [
                callee
                for callee in call_graph.callees[computation]
                if call_graph.is_fused(callee) and CLONE in callee.name
            ]
            found.append(computation)
    found.sort(key=lambda each: _age(each, call_graph))
    return found


# Before fusion.


def _is_converted(computation: HloComputation, call_graph: CallGraph) -> bool:
    return (
        CLONE in computation.name
        and not call_graph.is_in_flow(computation)
        and not _is_stable_comparator(computation, call_graph)
        and any(each.opcode == "convert" for each in computation.instructions)
    )


def _is_stable_comparator(clone: HloComputation, call_graph: CallGraph) -> bool:
    """Whether `StableSortExpander` made a comparator anew and dropped the old one."""
    original = clone.name.rpartition(CLONE)[0]
    is_comparator = clone.root.shape.element_type is ElementType.PRED
    return is_comparator and original not in call_graph.module.computation_by_name


def _is_sort_with_iota(body: HloComputation, call_graph: CallGraph) -> bool:
    """Whether `SortIotaFusion` made it, before what all other fusions go through."""
    return bool(call_graph.callees[body]) and body.root.opcode == "sort"


def _made_early(computations: list[HloComputation], call_graph: CallGraph) -> list[HloComputation]:
    own: list[HloComputation] = []
    partitioned: list[HloComputation] = []
    derived: list[HloComputation] = []
    flattened: list[HloComputation] = []
    split_sums: list[HloComputation] = []
    for computation in computations:
        name = computation.name
        if _SPLIT_SUM.match(name):
            split_sums.append(computation)
        elif _is_flattened(computation, call_graph):
            flattened.append(computation)
        elif is_derived(computation, call_graph) or name.startswith(TOP_K_COMPARATOR):
            derived.append(computation)
        elif name.endswith(PARTITIONED):
            partitioned.append(computation)
        else:
            own.append(computation)
    own.sort(key=place_in_program)
    derived = _sort_derived(derived, call_graph)
    split_sums.sort(key=lambda each: _age(each, call_graph))
    return [
        *own,
        *in_order_of_parameters(partitioned, call_graph),
        *derived,
        *_sort_flattened(flattened, derived, call_graph),
        *split_sums,
    ]


def _sort_derived(
    computations: list[HloComputation], call_graph: CallGraph
) -> list[HloComputation]:
    encounter = first_calls(call_graph)
    channels = _channels(computations, call_graph)
    earliest = len(encounter)
    for computation in sorted(channels, key=channels.__getitem__, reverse=True):
        earliest = encounter[computation] = min(earliest, encounter.get(computation, 0))
    priorities = {
        each: _derivation_priority(each, encounter, channels, call_graph) for each in computations
    }
    return in_order_of_parameters(computations, call_graph, priorities)


def _channels(
    computations: list[HloComputation], call_graph: CallGraph
) -> dict[HloComputation, int]:
    """The channels of all-reduces, which the partitioner counts; other passes renumber the rest."""
    channels: dict[HloComputation, int] = {}
    for computation in computations:
        for site in call_graph.callsites[computation]:
            if site.opcode == "all-reduce" and (match := _CHANNEL.search(site.attribute_text)):
                channels[computation] = int(match[1])
    return channels


def _derivation_priority(
    computation: HloComputation,
    encounter: Mapping[HloComputation, int],
    channels: Mapping[HloComputation, int],
    call_graph: CallGraph,
) -> Priority:
    """By pass, then by what the pass goes through."""
    if computation.name.startswith(TOP_K_COMPARATOR):
        return 0, _age(computation, call_graph)
    if _is_of_collective(computation, call_graph):
        return 1, encounter.get(computation, 0), channels.get(computation, 0)
    if _is_stable_comparator(computation, call_graph):
        return 4, encounter.get(computation, 0)
    if computation.name.startswith(_PRODUCT_SUM):
        return 5, _age(computation, call_graph)
    return 3 if CLONE in computation.name else 2, _age(computation, call_graph)


def _is_of_collective(computation: HloComputation, call_graph: CallGraph) -> bool:
    is_applied = any(site.opcode in COLLECTIVES for site in call_graph.callsites[computation])
    return is_applied and CLONE in computation.name


# The last flattening.


def _is_flattened(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether the last flattening cloned it.

    Loops were cloned before, with the functions they are in; those that are the same as another
    became one again (`HloComputationDeduplicator`), so that the first clone is gone.
    """
    original, clone, _ = computation.name.rpartition(CLONE)
    if not clone or _is_of_collective(computation, call_graph):
        return False
    if not call_graph.is_in_flow(computation):
        return not _is_stable_comparator(computation, call_graph)
    if any(site.opcode == "conditional" for site in call_graph.callsites[computation]):
        return CLONE not in original
    by_name = call_graph.module.computation_by_name
    return original in by_name and original + CLONE not in by_name


def _sort_flattened(
    clones: list[HloComputation], derived: list[HloComputation], call_graph: CallGraph
) -> list[HloComputation]:
    """By what they are clones of, callees first, each with the clones of what it calls."""
    place_of = {each.name: place for place, each in enumerate(derived)}
    called_by = {each: _cloned_with(each, clones, call_graph) for each in clones}
    inner = set(itertools.chain.from_iterable(called_by.values()))
    outer = [each for each in clones if each not in inner]
    priorities = {
        each: (
            *max(_place_of_original(one, place_of) for one in (each, *called_by[each])),
            len(called_by[each]),
            number_of(each),
        )
        for each in outer
    }
    order: list[HloComputation] = []
    for clone in in_order_of_parameters(outer, call_graph, priorities):
        order += [clone, *called_by[clone]]
    return order


def _cloned_with(
    clone: HloComputation, clones: list[HloComputation], call_graph: CallGraph
) -> list[HloComputation]:
    """The clones of what it calls, in the order in which `FlattenCallGraph` makes them."""
    found: dict[HloComputation, None] = {}
    worklist = [clone]
    while worklist:
        called = [each for each in calls_with_fusions(worklist.pop(), call_graph) if each in clones]
        worklist += called
        found.update(dict.fromkeys(called))
    return list(found)


def _place_of_original(clone: HloComputation, place_of: Mapping[str, int]) -> Priority:
    """What the program came with is cloned first, then what passes made, the oldest first."""
    original = clone.name.rpartition(CLONE)[0]
    return (_MADE_BY_PASS, place_of[original]) if original in place_of else _region(original)


def _region(name: str) -> Priority:
    """The numbers of the program's own computation that a name begins with."""
    match = _REGION.match(name)
    return (int(match[2]), int(match[1] or -1)) if match else (_MADE_BY_PASS,)


# Since fusion.


def _stamp_numbered(computations: list[HloComputation], call_graph: CallGraph) -> Stamped:
    """By their parameters; what has none is as old as the next that has."""
    stamped: Stamped = []
    next_time = _NEVER
    for computation in reversed(computations):
        time = _time(computation, call_graph)
        next_time = next_time if time is None else time
        stamped.append((next_time, computation))
    stamped.reverse()
    return stamped


def _stamp_fused(
    fused: list[HloComputation],
    order: Sequence[HloComputation],
    late: Stamped,
    call_graph: CallGraph,
) -> Stamped:
    """By their parameters; what has none was made when its caller was gone through.

    Fusion goes through one computation after the other, about in `order`. A number from the time of
    a later one belongs to a body that a later pass made. So do those from the time of what is
    `late`, of which only transfers to the host are older than all fusions.
    """
    place_of = {computation: place for place, computation in enumerate(order)}

    def caller(body: HloComputation) -> int:
        sites = call_graph.callsites[body]
        return place_of.get(sites[0].parent, -1) if sites else -1

    groups = [list(group) for _, group in itertools.groupby(sorted(fused, key=caller), key=caller)]
    visits = [[(_time(body, call_graph), body) for body in group] for group in groups]
    begin = min(itertools.chain.from_iterable(map(_times, visits)), default=0)
    end = min((each for each, _ in late if each > begin), default=_NEVER)
    visits = _in_order_of_times(visits, end)
    stamped: Stamped = []
    latest = -1.0
    for visit, visit_end in zip(visits, _ends(visits, end), strict=True):
        latest = max([latest, *(each for each in _times(visit) if each < visit_end)])
        for time, body in visit:
            if _is_rematerialized(body, call_graph):
                stamped.append((_NEVER if time is None else time, body))
            elif time is None or _is_renewed(time, body, visit_end):
                stamped.append((latest + 0.5, body))
            else:
                stamped.append((time, body))
    return stamped


_Visit = list[tuple[int | None, "HloComputation"]]
"""The bodies in one computation that fusion went through, with the time they were made at."""


def _times(visit: _Visit) -> list[int]:
    return [time for time, _ in visit if time is not None]


def _ends(visits: list[_Visit], end: float) -> list[float]:
    """When each visit was over: before the first time of any later one."""
    ends: list[float] = []
    for visit in reversed(visits):
        ends.append(end)
        end = min([end, *_times(visit)])
    return ends[::-1]


def _in_order_of_times(visits: list[_Visit], end: float) -> list[_Visit]:
    """Sorted by their first times; what has none stays after the one before it."""
    starts: list[float] = []
    for visit, visit_end in zip(visits, _ends(visits, end), strict=True):
        kept = (
            time
            for time, body in visit
            if time is not None and not _is_renewed(time, body, visit_end)
        )
        starts.append(min(kept, default=starts[-1] if starts else -1))
    return [visits[place] for place in sorted(range(len(visits)), key=starts.__getitem__)]


def _is_renewed(time: float, body: HloComputation, visit_end: float) -> bool:
    return time >= visit_end and _took_other_in(body)


def _took_other_in(body: HloComputation) -> bool:
    """Whether a later pass put clones of another body into this one, and renewed its parameters.

    `MultiOutputFusion` does so; but of a single instruction it makes a new body first.
    """
    own = [each for each in body.instructions if each.opcode not in ("parameter", "tuple")]
    kept = [each for each in own if "clone" not in each.name]
    return body.root.opcode == "tuple" and 1 < len(kept) < len(own)
