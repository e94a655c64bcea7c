"""In which order the GPU compiler made the computations of a module, read off their names.

As `creation_order.py`, for the passes of `service/gpu/gpu_compiler.cc`:

1. all that is older than fusion (`gpu_derivates.py`),
2. bodies around products and softmaxes (`GemmFusion`, `SoftmaxRewriterTriton`), numbered by their
   parameters,
3. clones that convert (`FloatNormalization`), by what the program came with,
4. bodies around sorts and the indices they take along (`SortIotaFusion`),
5. everything else: bodies of fusions, bodies around one instruction, asynchronous computations and
   rematerialized bodies. All their parameters are called `param_0`, and `NameUniquer` numbers them
   as they are made, whichever pass does it. `RenameFusions` leaves no other trace.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from hlomem.history.computations.creation import first_parameter, parameter_number, wrapped_bodies
from hlomem.history.computations.gpu_before_fusion import (
    is_stable_comparator,
    made_before_fusion,
    region_numbers,
)
from hlomem.history.computations.incremental_order import sorted_incrementally
from hlomem.history.names import CLONE, split_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation

_MADE_BEFORE_FUSION = ("gemm_fusion_", "triton_softmax_")
_NOT_RENAMED = "fused_computation"
_REMATERIALIZED = ".remat"
_NUMBERED_PARAMETER = "param_0"
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
    asynchronous = dict.fromkeys(_asynchronous(call_graph))
    wrapped = [each for each in wrapped_bodies(call_graph) if each not in asynchronous]
    numbered = dict.fromkeys([*wrapped, *asynchronous])
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
        each_kind.sort(key=lambda each: parameter_number(each, call_graph))
    converted.sort(
        key=lambda each: (*region_numbers(each.name), parameter_number(each, call_graph))
    )
    before_fusion = [*made_before_fusion(early, call_graph), *products, *converted, *sorts]
    late = _stamp_numbered(list(numbered), call_graph)
    roughly = [*before_fusion, *fused, *numbered]
    order = sorted_incrementally(roughly, call_graph, len(before_fusion))
    stamped = [*_stamp_fused(fused, order, late, call_graph), *late]
    stamped.sort(key=lambda entry: entry[0])
    return [*before_fusion, *(computation for _, computation in stamped)]


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
    found.sort(key=lambda each: parameter_number(each, call_graph))
    return found


# Before fusion.


def _is_converted(computation: HloComputation, call_graph: CallGraph) -> bool:
    return (
        CLONE in computation.name
        and not call_graph.is_in_flow(computation)
        and not is_stable_comparator(computation, call_graph)
        and any(each.opcode == "convert" for each in computation.instructions)
    )


def _is_sort_with_iota(body: HloComputation, call_graph: CallGraph) -> bool:
    """Whether `SortIotaFusion` made it, before what all other fusions go through."""
    is_custom = body.name.startswith(_NOT_RENAMED)
    return is_custom and bool(call_graph.callees[body]) and body.root.opcode == "sort"


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
    """Sorted by their first times; what has none by its names, or else after the one before it.

    `RenameFusions` goes through the same computations: of bodies that are called the same, the one
    with the smaller number belongs to an earlier visit.
    """
    ends = _ends(visits, end)
    starts = [_start(visit, visit_end) for visit, visit_end in zip(visits, ends, strict=True)]
    timed = [
        (start, *split_number(body.name))
        for start, visit in zip(starts, visits, strict=True)
        for _, body in visit
        if start < _NEVER
    ]
    previous = -1.0
    for place, visit in enumerate(visits):
        if starts[place] == _NEVER:
            names = dict(split_number(body.name) for _, body in visit)
            later = [
                start - 0.5 for start, base, number in timed if number > names.get(base, number)
            ]
            starts[place] = min([previous, *later])
        previous = starts[place]
    return [visits[place] for place in sorted(range(len(visits)), key=starts.__getitem__)]


def _start(visit: _Visit, visit_end: float) -> float:
    """The first time of a visit, as far as it tells."""
    kept = (
        time for time, body in visit if time is not None and not _is_renewed(time, body, visit_end)
    )
    return min(kept, default=_NEVER)


def _is_renewed(time: float, body: HloComputation, visit_end: float) -> bool:
    return time >= visit_end and _took_other_in(body)


def _took_other_in(body: HloComputation) -> bool:
    """Whether a later pass put clones of another body into this one, and renewed its parameters.

    `MultiOutputFusion` does so; but of a single instruction it makes a new body first.
    """
    own = [each for each in body.instructions if each.opcode not in ("parameter", "tuple")]
    kept = [each for each in own if "clone" not in each.name]
    return body.root.opcode == "tuple" and 1 < len(kept) < len(own)
