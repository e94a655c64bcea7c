"""In which order the compiler made the computations of a module, read off their names.

XLA keeps computations in the order in which it made them, and numbers values by an order that
depends on it; the text shows neither. But names tell: `NameUniquer` counts upwards for each base
name, so of `fused_computation.4` and `.7` the former is older, and a clone whose parameter is
`add.12` was made before one whose parameter is `add.15`. What names leave open is filled with the
order of the passes that make computations (`cpu_compiler.cc: RunHloPasses`):

1. those the program came with, numbered as they came,
2. clones and other derivates, by the passes that make them,
3. bodies of fusions, numbered,
4. bodies of fusions around one instruction (`wrapped_add_computation`), in the order in which
   `FusionWrapperBase::RunImpl` walks through the program,
5. computations that calls were made for (`while.24_computation`, `parallel_add`), each after the
   bodies cloned into it.
"""

from __future__ import annotations

import itertools
import re
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation

_DERIVED = re.compile(r"\.clone|_promoted|\.reduce_window|\.reduce_sub_computation")
_FIRST_CLONE = re.compile(r"[^.]*(?:\.(?!clone)[^.]*)*\.clone")
_MADE_FOR_CALL = re.compile(r"_computation(?:\.[0-9]+)?(?:\.clone.*)?|^parallel_")
_WALKED = frozenset({"async-start", "call", "conditional", "while"})


def creation_order(call_graph: CallGraph) -> list[HloComputation]:
    """The computations of a module, the oldest first."""
    own: list[HloComputation] = []
    derived: list[HloComputation] = []
    fused: list[HloComputation] = []
    outlined = _outlined(call_graph)
    wrapped = [each for each in _wrapped_bodies(call_graph) if each not in outlined]
    placed = {*outlined, *wrapped}
    # Where the program's own computations are numbered, one without a number is not its own.
    entry_number = _number(call_graph.module.entry)
    for computation in call_graph.module.computations:
        if computation in placed:
            continue
        if call_graph.is_fused(computation):
            fused.append(computation)
        elif _DERIVED.search(computation.name) or (_number(computation) < 0 <= entry_number):
            derived.append(computation)
        else:
            own.append(computation)
    own.sort(key=_number)
    fused.sort(key=_number)
    derived = _in_order_of_parameters(derived, _clone_priorities(derived, call_graph))
    return [*own, *derived, *fused, *wrapped, *outlined]


def split_number(name: str) -> tuple[str, int]:
    """A name's base and number; -1 where it has none."""
    base, _, number = name.rpartition(".")
    return (base, int(number)) if base and number.isdecimal() else (name, -1)


def _number(computation: HloComputation) -> int:
    return split_number(computation.name)[1]


def _outlined(call_graph: CallGraph) -> dict[HloComputation, None]:
    """Computations that calls were made for, by age, each after the bodies cloned into it."""
    made_for_calls = [
        each for each in call_graph.module.computations if _is_made_for_call(each, call_graph)
    ]
    ordered: dict[HloComputation, None] = {}
    for computation in _in_order_of_parameters(
        made_for_calls, dict.fromkeys(made_for_calls, (0, 0))
    ):
        for callee in call_graph.callees[computation]:
            if call_graph.is_fused(callee) and ".clone" in callee.name:
                ordered[callee] = None
        ordered[computation] = None
    return ordered


def _is_made_for_call(computation: HloComputation, call_graph: CallGraph) -> bool:
    sites = call_graph.callsites[computation]
    return (
        bool(sites)
        and sites[0].opcode == "call"
        and _MADE_FOR_CALL.search(computation.name) is not None
    )


def _wrapped_bodies(call_graph: CallGraph) -> dict[HloComputation, None]:
    """Bodies of fusions around one instruction, in the order in which the program is walked."""
    bodies: dict[HloComputation, None] = {}
    pending = list(reversed(call_graph.post_order(call_graph.module.entry)))
    while pending:
        instruction = pending.pop()
        if instruction.opcode in _WALKED:
            for callee in reversed(instruction.called_computations):
                pending += reversed(call_graph.post_order(callee))
        elif instruction.opcode == "fusion":
            body = instruction.called_computations[0]
            if body.name.startswith("wrapped_"):
                bodies.setdefault(body)
    return bodies


Priority = tuple[int, int]


def _clone_priorities(
    computations: list[HloComputation], call_graph: CallGraph
) -> dict[HloComputation, Priority]:
    """When clones were made as far as names do not tell: by pass, then by first call.

    Passes in the order of the pipeline: all-reduce promotion; float normalization, whose clones
    convert; the rewriters of reductions; the rewriter of top-k, whose clones custom calls call.
    """
    encounter = _first_calls(call_graph)

    def pass_number(computation: HloComputation) -> int:
        if "_promoted" in computation.name:
            return 0
        if any(site.opcode == "custom-call" for site in call_graph.callsites[computation]):
            return 3
        is_first_clone = _FIRST_CLONE.fullmatch(computation.name) is not None
        converts = any(each.opcode == "convert" for each in computation.instructions)
        return 1 if is_first_clone and converts else 2

    return {each: (pass_number(each), encounter.get(each, 0)) for each in computations}


def _first_calls(call_graph: CallGraph) -> dict[HloComputation, int]:
    """The computations numbered as a walk through the program first meets a call of them."""
    encounter: dict[HloComputation, int] = {}

    def callees(computation: HloComputation) -> list[HloComputation]:
        if call_graph.is_fused(computation):
            return call_graph.callees[computation]
        return [
            callee
            for instruction in call_graph.post_order(computation)
            for callee in instruction.called_computations
        ]

    pending = callees(call_graph.module.entry)[::-1]
    while pending:
        computation = pending.pop()
        if computation not in encounter:
            encounter[computation] = len(encounter)
            pending += reversed(callees(computation))
    return encounter


def _in_order_of_parameters(
    computations: list[HloComputation], priority: dict[HloComputation, Priority]
) -> list[HloComputation]:
    """Sorted so that numbers in the names of first parameters grow, otherwise by priority."""
    chains: dict[str, list[tuple[int, HloComputation]]] = {}
    for computation in computations:
        if computation.parameters:
            base, number = split_number(computation.parameters[0].name)
            chains.setdefault(base, []).append((number, computation))
    next_of: dict[HloComputation, HloComputation] = {}
    for chain in chains.values():
        chain.sort(key=lambda entry: entry[0])
        # No one may wait for longer than the next in its chain.
        for (_, older), (_, younger) in reversed(list(itertools.pairwise(chain))):
            next_of[older] = younger
            priority[older] = min(priority[older], priority[younger])
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
