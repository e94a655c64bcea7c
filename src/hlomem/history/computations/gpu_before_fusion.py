"""When the GPU compiler made the computations that are older than fusion.

`gpu_compiler.cc` takes over and makes computations in this order:

1. those the program came with, numbered as they came; those the partitioner made of them,
2. comparators of top-k (`TopkDecomposer`),
3. clones for the collectives of the partitioner, as a walk through the program meets them, those of
   all-reduces by their channels,
4. what expanders and rewriters made: windows, loops with other bodies; then comparators of stable
   sorts (`StableSortExpander`) and sums of products (`AlgebraicSimplifier`),
5. clones of what is called twice (`FlattenCallGraph`), by what they are clones of: what the
   program came with, then what passes made; loops and branches with all they call,
6. sums of products that were split (`SplitkRewriter`).
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from hlomem.history.computations.creation import (
    calls_with_fusions,
    channel_of,
    first_calls,
    in_order_of_parameters,
    is_derived,
    parameter_number,
    place_in_program,
)
from hlomem.history.computations.incremental_order import sorted_incrementally
from hlomem.history.names import CLONE, PARTITIONED, TOP_K_COMPARATOR, number_of
from hlomem.hlo.opcodes import COLLECTIVES
from hlomem.hlo.shape import ElementType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.history.computations.creation import Priority
    from hlomem.hlo.ir import HloComputation

_SPLIT_SUM = re.compile(r"dot(?:\.[0-9]+)?\.reduce_sub_computation", re.ASCII)
_PRODUCT_SUM = "scalar_add_computation"
_LARGEST_MADE_ONE = 128
_MADE_BY_PASS = 1 << 62
_REGION = re.compile(r"(?:region_([0-9]+)|[a-z_]+)\.([0-9]+)", re.ASCII)


def made_before_fusion(
    computations: list[HloComputation], call_graph: CallGraph
) -> list[HloComputation]:
    """Computations without bodies of fusions and clones that convert, the oldest first."""
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
    own.sort(key=_places_in_program(own, call_graph).__getitem__)
    partitioned = in_order_of_parameters(partitioned, call_graph)
    flow = [*own, *partitioned, *(each for each in flattened if call_graph.is_in_flow(each))]
    derived = _sort_derived(derived, flow, call_graph)
    split_sums.sort(key=lambda each: parameter_number(each, call_graph))
    return [
        *own,
        *partitioned,
        *derived,
        *_sort_flattened(flattened, derived, call_graph),
        *split_sums,
    ]


def _places_in_program(
    own: list[HloComputation], call_graph: CallGraph
) -> dict[HloComputation, tuple[int, int]]:
    """By number; what lost its number (`region_4.0`) stands after the region before it.

    Regions are counted as they begin and numbered as they end, which is the same for all that call
    nothing.
    """
    places = {each: place_in_program(each) for each in own}
    leaves = [each for each in own if not call_graph.is_in_flow(each)]
    before = 0
    for leaf in sorted(leaves, key=lambda each: places[each][1]):
        number, region = places[leaf]
        places[leaf] = number or before, region
        before = max(before, number)
    return places


def _sort_derived(
    computations: list[HloComputation], flow: list[HloComputation], call_graph: CallGraph
) -> list[HloComputation]:
    encounter = first_calls(call_graph)
    comparators = {each for each in computations if is_stable_comparator(each, call_graph)}
    if len(comparators) > 1:
        encounter |= _comparators_met(comparators, flow, call_graph)
    channels = _channels(computations, call_graph)
    earliest = len(encounter)
    for computation in sorted(channels, key=channels.__getitem__, reverse=True):
        earliest = encounter[computation] = min(earliest, encounter.get(computation, 0))
    priorities = {
        each: _derivation_priority(each, encounter, channels, call_graph) for each in computations
    }
    return in_order_of_parameters(computations, call_graph, priorities)


def _comparators_met(
    comparators: set[HloComputation], flow: list[HloComputation], call_graph: CallGraph
) -> dict[HloComputation, int]:
    """Comparators numbered as `StableSortExpander` meets them, in the order of computations.

    The loops of functions had been cloned then, which moved their callers.
    """
    in_flow = set(flow)
    rest = [each for each in call_graph.module.computations if each not in in_flow]
    met: dict[HloComputation, int] = {}
    for caller in sorted_incrementally([*flow, *rest], call_graph, len(flow)):
        for callee in calls_with_fusions(caller, call_graph):
            if callee in comparators:
                met.setdefault(callee, len(met))
    return met


def _channels(
    computations: list[HloComputation], call_graph: CallGraph
) -> dict[HloComputation, int]:
    """The channels of all-reduces, which the partitioner counts; other passes renumber the rest."""
    channels: dict[HloComputation, int] = {}
    for computation in computations:
        for site in call_graph.callsites[computation]:
            if site.opcode == "all-reduce" and (channel := channel_of(site)) is not None:
                channels[computation] = channel
    return channels


def _derivation_priority(
    computation: HloComputation,
    encounter: Mapping[HloComputation, int],
    channels: Mapping[HloComputation, int],
    call_graph: CallGraph,
) -> Priority:
    """By pass, then by what the pass goes through."""
    if computation.name.startswith(TOP_K_COMPARATOR) and CLONE not in computation.name:
        return 0, parameter_number(computation, call_graph)
    if _is_of_collective(computation, call_graph):
        return 1, encounter.get(computation, 0), channels.get(computation, 0)
    if is_stable_comparator(computation, call_graph):
        return 4, encounter.get(computation, 0)
    if computation.name.startswith(_PRODUCT_SUM):
        return 5, parameter_number(computation, call_graph)
    return 3 if CLONE in computation.name else 2, parameter_number(computation, call_graph)


def is_stable_comparator(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether `StableSortExpander` made a comparator anew and dropped the old one."""
    original, clone, _ = computation.name.rpartition(CLONE)
    is_comparator = computation.root.shape.element_type is ElementType.PRED
    is_new = original not in call_graph.module.computation_by_name
    return bool(clone) and is_comparator and is_new


def _is_of_collective(computation: HloComputation, call_graph: CallGraph) -> bool:
    is_applied = any(site.opcode in COLLECTIVES for site in call_graph.callsites[computation])
    return is_applied and CLONE in computation.name


# The last flattening.


def _is_flattened(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether the last flattening cloned it.

    Loops were cloned before, with the functions they are in; those that are the same as another
    and not too large became one again (`HloComputationDeduplicator`).
    """
    original, clone, _ = computation.name.rpartition(CLONE)
    if not clone or _is_of_collective(computation, call_graph):
        return False
    if not call_graph.is_in_flow(computation):
        return not is_stable_comparator(computation, call_graph)
    if any(site.opcode == "conditional" for site in call_graph.callsites[computation]):
        return CLONE not in original
    by_name = call_graph.module.computation_by_name
    return original in by_name and (
        original + CLONE not in by_name or _size(computation) <= _LARGEST_MADE_ONE
    )


def _size(computation: HloComputation) -> int:
    """How many instructions a computation had before fusion, at most."""
    fused = [
        callee
        for each in computation.instructions
        if each.opcode == "fusion"
        for callee in each.called_computations
    ]
    return sum(each.instruction_count for each in (computation, *fused))


def _sort_flattened(
    clones: list[HloComputation], derived: list[HloComputation], call_graph: CallGraph
) -> list[HloComputation]:
    """By what they are clones of, callees first, each with the clones of what it calls."""
    place_of = {each.name: place for place, each in enumerate(derived)}
    is_clone = dict.fromkeys(clones)

    def calls(caller: HloComputation) -> list[HloComputation]:
        called = [each for each in calls_with_fusions(caller, call_graph) if each in is_clone]
        return sorted(called, key=lambda each: place_of.get(_original(each), -1))

    called_by = {
        each: _cloned_with(each, calls) if call_graph.callees[each] else [] for each in clones
    }
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
    order: dict[HloComputation, None] = {}
    for clone in in_order_of_parameters(outer, call_graph, priorities):
        order |= dict.fromkeys([clone, *called_by[clone]])
    return list(order)


def _cloned_with(
    clone: HloComputation, calls: Callable[[HloComputation], list[HloComputation]]
) -> list[HloComputation]:
    """The clones of what it calls, in the order in which `FlattenCallGraph` makes them."""
    found: dict[HloComputation, None] = {}
    worklist = [clone]
    while worklist:
        called = [each for each in calls(worklist.pop()) if each not in found]
        worklist += called
        found.update(dict.fromkeys(called))
    return list(found)


def _original(clone: HloComputation) -> str:
    return clone.name.rpartition(CLONE)[0]


def _place_of_original(clone: HloComputation, place_of: Mapping[str, int]) -> Priority:
    """What the program came with is cloned first, then what passes made, the oldest first."""
    name = clone.name
    while CLONE in name:
        name = name.rpartition(CLONE)[0]
        if name in place_of:
            return _MADE_BY_PASS, place_of[name]
    return region_numbers(name)


def region_numbers(name: str) -> Priority:
    """The numbers of the program's own computation that a name begins with."""
    match = _REGION.match(name)
    return (int(match[2]), int(match[1] or -1)) if match else (_MADE_BY_PASS,)
