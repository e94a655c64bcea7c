"""In which order the compiler made the computations of a module, read off their names.

XLA keeps computations in the order in which it made them, and numbers values by an order that
depends on it; the text shows neither. But names tell: `NameUniquer` counts upwards for each base
name, so of `fused_computation.4` and `.7` the former is older, and a clone whose parameter is
`add.12` was made before one whose parameter is `add.15`. What names leave open is filled with the
order of the passes that make computations (`cpu_compiler.cc: RunHloPasses`):

1. those the program came with, numbered as they came; those the partitioner made anew of them
   (`region_0.1_spmd`), numbered by their parameters,
2. clones and other derivates, by the passes that make them, inner loops before outer ones,
3. bodies of fusions, numbered,
4. bodies of fusions around one instruction (`wrapped_add_computation`), numbered by their
   parameters, those without in the order in which `FusionWrapperBase::RunImpl` walks through the
   program,
5. computations that calls were made for (`while.24_computation`, `parallel_add`), each after the
   bodies cloned into it.
"""

from __future__ import annotations

import itertools
import re
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from hlomem.history.names import CLONE, PARTITIONED, TOP_K_COMPARATOR, split_number
from hlomem.hlo.ir import HloInstruction
from hlomem.hlo.opcodes import RUN_IN_PLACE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation

_DERIVED = re.compile(
    r"\.clone|_promoted|\.reduce_window|\.reduce_sub_computation"
    rf"|^{TOP_K_COMPARATOR}|^while_(?:cond|body)(?:\.[0-9]+)?$"
)
_MADE_FOR_CALL = re.compile(r"_computation(?:\.[0-9]+)?(?:\.clone.*)?|^parallel_")
_CHANNEL = re.compile(r", channel_id=([0-9]{1,18})")
_CUT_OUT = frozenset({"fusion", "async-start"})
_CALLING = RUN_IN_PLACE | {"fusion"}


def creation_order(
    call_graph: CallGraph,
    sort_derived: Callable[[list[HloComputation], CallGraph], list[HloComputation]],
) -> list[HloComputation]:
    """The computations of a module, the oldest first; passes differ in how they derive some."""
    own: list[HloComputation] = []
    partitioned: list[HloComputation] = []
    derived: list[HloComputation] = []
    fused: list[HloComputation] = []
    outlined = _outlined(call_graph)
    wrapped = [each for each in wrapped_bodies(call_graph) if each not in outlined]
    wrapped = _numbered_by_parameters(wrapped, call_graph)
    placed = {*outlined, *wrapped}
    for computation in call_graph.module.computations:
        if computation in placed:
            continue
        if call_graph.is_fused(computation):
            fused.append(computation)
        elif is_derived(computation, call_graph):
            derived.append(computation)
        elif computation.name.endswith(PARTITIONED):
            partitioned.append(computation)
        else:
            own.append(computation)
    own.sort(key=place_in_program)
    fused.sort(key=_own_number)
    partitioned = in_order_of_parameters(partitioned, call_graph)
    derived = sort_derived(derived, call_graph)
    return [*own, *partitioned, *derived, *fused, *wrapped, *outlined]


def _own_number(computation: HloComputation) -> int:
    return split_number(computation.name.removesuffix(PARTITIONED))[1]


def place_in_program(computation: HloComputation) -> tuple[int, int]:
    """Where the program has one of its own computations."""
    return place_by_name(computation.name)


def place_by_name(name: str) -> tuple[int, int]:
    """By number; where all have the same (`region_0.0`, `region_1.0`), by the one before it."""
    base, number = split_number(name.removesuffix(PARTITIONED))
    region = base.removeprefix("region_")
    return number, int(region) if region.isdecimal() else -1


def first_parameter(computation: HloComputation, _: CallGraph) -> str:
    """The name of the first parameter, found without opening the body of a fusion."""
    return computation.first_parameter_name


def parameter_number(computation: HloComputation, call_graph: CallGraph) -> int:
    """The number of the first parameter; -1 where it has none."""
    return split_number(first_parameter(computation, call_graph))[1]


def is_derived(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether a pass made it: by its name, or for the top-k that became a custom call.

    Where the program's own computations are numbered, one without a number is not its own, nor is
    the second of the same name.
    """
    module = call_graph.module
    base, number = split_number(computation.name.removesuffix(PARTITIONED))
    return (
        _DERIVED.search(computation.name) is not None
        or ((number < 0 or base in module.computation_by_name) and _own_number(module.entry) >= 0)
        or any(site.opcode == "custom-call" for site in call_graph.callsites[computation])
    )


def _outlined(call_graph: CallGraph) -> dict[HloComputation, None]:
    """Computations that calls were made for, by age, each after the bodies cloned into it."""
    made_for_calls = [
        each for each in call_graph.module.computations if is_made_for_call(each, call_graph)
    ]
    ordered: dict[HloComputation, None] = {}
    for computation in in_order_of_parameters(made_for_calls, call_graph):
        for callee in call_graph.callees[computation]:
            if call_graph.is_fused(callee) and CLONE in callee.name:
                ordered[callee] = None
        ordered[computation] = None
    return ordered


def is_made_for_call(computation: HloComputation, call_graph: CallGraph) -> bool:
    sites = call_graph.callsites[computation]
    return (
        bool(sites)
        and sites[0].opcode == "call"
        and _MADE_FOR_CALL.search(computation.name) is not None
    )


def wrapped_bodies(call_graph: CallGraph) -> dict[HloComputation, None]:
    """Bodies of fusions around one instruction, in the order in which the program is walked."""
    bodies: dict[HloComputation, None] = {}
    walked: set[HloComputation] = set()  # XLA walks them again, and meets nothing new
    pending: list[HloComputation | HloInstruction] = [call_graph.module.entry]
    while pending:
        item = pending.pop()
        if isinstance(item, HloInstruction):
            if item.opcode in RUN_IN_PLACE:
                pending += reversed(item.called_computations)
            elif (body := item.called_computations[0]).name.startswith("wrapped_"):
                bodies.setdefault(body)
        elif item not in walked:
            walked.add(item)
            calls = [each for each in call_graph.post_order(item) if each.opcode in _CALLING]
            pending += reversed(calls)
    return bodies


def _numbered_by_parameters(
    walked: list[HloComputation], call_graph: CallGraph
) -> list[HloComputation]:
    """Sorted by the number of the first parameter; what has none stays before the one after it.

    The walk went through the program as it was then: dead instructions, gone since, came first.
    """
    groups: list[tuple[int, list[HloComputation]]] = []
    group: list[HloComputation] = []
    for body in walked:
        group.append(body)
        name = first_parameter(body, call_graph)
        if name:
            groups.append((split_number(name)[1], group))
            group = []
    groups.sort(key=lambda entry: entry[0])
    return [*itertools.chain.from_iterable(bodies for _, bodies in groups), *group]


Priority = tuple[int, ...]


def channel_of(collective: HloInstruction) -> int | None:
    """The channel of a collective; the partitioner counts them."""
    match = _CHANNEL.search(collective.attribute_text)
    return int(match[1]) if match else None


def first_calls(call_graph: CallGraph) -> dict[HloComputation, int]:
    """The computations numbered as a walk through the program, callees first, meets their calls.

    The bodies of fusions count as a part of their callers: they were cut out of them later.
    """
    encounter: dict[HloComputation, int] = {}
    visited: set[HloComputation] = set()
    pending: list[HloComputation | list[HloComputation]] = [call_graph.module.entry]
    while pending:
        item = pending.pop()
        if isinstance(item, list):  # what a computation calls, all of it visited
            for callee in item:
                encounter.setdefault(callee, len(encounter))
        elif item not in visited:
            visited.add(item)
            calls = calls_with_fusions(item, call_graph)
            pending.append(calls)
            pending += [callee for callee in reversed(calls) if call_graph.callees[callee]]
    return encounter


def calls_with_fusions(computation: HloComputation, call_graph: CallGraph) -> list[HloComputation]:
    """What a computation calls, and what was cut out of it calls."""
    calls: list[HloComputation] = []
    for instruction in call_graph.post_order(computation):
        for callee in instruction.called_computations:
            if instruction.opcode in _CUT_OUT or _is_cut_out(callee, call_graph):
                calls += call_graph.callees[callee]
            else:
                calls.append(callee)
    return [each for each in calls if not call_graph.is_fused(each)]


def _is_cut_out(computation: HloComputation, call_graph: CallGraph) -> bool:
    """Whether a call was made for what its caller did itself before.

    What expanders make, they make together with all that it calls: no walk came through before.
    """
    if not is_made_for_call(computation, call_graph):
        return False
    callees = call_graph.callees[computation]
    return all(CLONE in each.name or not is_derived(each, call_graph) for each in callees)


def in_order_of_parameters(
    computations: list[HloComputation],
    call_graph: CallGraph,
    priorities: Mapping[HloComputation, Priority] | None = None,
    *,
    hurries_within_pass: bool = True,
) -> list[HloComputation]:
    """Sorted so that numbers in the names of first parameters grow, otherwise by priority.

    Without priorities, what numbers leave open stays in the order given. Who is older than another
    comes no later than at its priority, or at least in its pass.
    """
    priority = dict(priorities or dict.fromkeys(computations, ()))
    chains: dict[str, list[tuple[int, HloComputation]]] = {}
    for computation in computations:
        name = first_parameter(computation, call_graph)
        if name:
            base, number = split_number(name)
            chains.setdefault(base, []).append((number, computation))
    next_of: dict[HloComputation, HloComputation] = {}
    for chain in chains.values():
        chain.sort(key=lambda entry: entry[0])
        for (_, older), (_, younger) in reversed(list(itertools.pairwise(chain))):
            next_of[older] = younger
            if hurries_within_pass:
                priority[older] = min(priority[older], priority[younger])
            elif priority[younger][0] < priority[older][0]:
                priority[older] = priority[younger][0], *priority[older][1:]
    later = set(next_of.values())
    place = {computation: i for i, computation in enumerate(computations)}
    ready = [(priority[each], place[each], each) for each in computations if each not in later]
    heapify(ready)
    order: list[HloComputation] = []
    while ready:
        computation = heappop(ready)[-1]
        order.append(computation)
        younger_one = next_of.get(computation)
        if younger_one is not None:
            heappush(ready, (priority[younger_one], place[younger_one], younger_one))
    return order
