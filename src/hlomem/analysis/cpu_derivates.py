"""When the CPU compiler since jaxlib 0.9 made the computations it derived from others.

`cpu_compiler.cc: RunHloPasses` clones and makes computations in this order:

1. the first flattening of the call graph, which clones all that a function called twice calls, as
   the program goes (`FlattenCallGraph`); where the program is partitioned, `SpmdPartitioner`, as a
   walk meets what is reduced,
2. all-reduce promotion,
3. float normalization, whose clones convert,
4. passes that make computations anew (`_MAKERS`), the expanders of loops last,
5. the last flattening, from the oldest to the youngest: of what a pass made and several
   instructions apply, and of reductions that became several: with windows reduced first
   (`TreeReductionRewriter`, `ReduceWindowRewriter`), or, where they have several results, the part
   of each partition (`SpmdPartitioningVisitor::HandleReduce`),
6. comparators of the top-k that became custom calls.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.analysis.creation_order import (
    CALL_IN_BODY,
    first_calls,
    first_parameter,
    is_derived,
    is_text,
    merge_chains,
    number_chains,
    place_by_name,
)
from hlomem.analysis.names import CLONE, PARTITIONED

if TYPE_CHECKING:
    from hlomem.analysis.call_graph import CallGraph
    from hlomem.analysis.creation_order import Priority
    from hlomem.hlo.ir import HloComputation

_WINDOW = "reduce-window"
_COLLECTIVES = frozenset({"all-reduce", "all-reduce-start", "reduce-scatter"})
_LAST_CLONE = re.compile(r"\.clone(?:\.[0-9]+)?$")
_MAKERS = (
    re.compile(r"^add_computation"),  # `ConvolutionGroupConverter`
    re.compile(r"\.reduce_window"),  # `ReduceWindowRewriter`
    re.compile(r"^scalar_add_computation"),  # `AlgebraicSimplifier`
)
"""What passes call what they make anew, in the order of the pipeline."""


def sort_derivates(
    computations: list[HloComputation], call_graph: CallGraph
) -> list[HloComputation]:
    """What passes derived, the oldest first."""
    if not computations:
        return []
    derivates = _Derivates(call_graph)
    priorities = {each: derivates.priority(each) for each in computations}
    is_partitioned = derivates.is_partitioned
    chains = number_chains({each: first_parameter(each, call_graph) for each in computations})
    if is_partitioned:
        chains += number_chains({each: _root_of_reducer(each) for each in computations})
    return merge_chains(chains, priorities, hurries_within_pass=is_partitioned)


def _root_of_reducer(computation: HloComputation) -> str:
    """The name of what reduces the parameters, where that is all there is."""
    root = computation.root
    return root.name if list(root.operands) == computation.parameters else ""


class _Derivates:
    def __init__(self, call_graph: CallGraph) -> None:
        self._call_graph = call_graph
        self._by_name = call_graph.module.computation_by_name
        self._reduces_windows = _window_reducers(call_graph)
        self.is_partitioned = call_graph.module.entry.name.endswith(PARTITIONED)
        self._place_of = _places_of_calls(call_graph) if self.is_partitioned else {}
        self._encounter = first_calls(call_graph)

    def priority(self, computation: HloComputation) -> Priority:
        """The number of the pass, then what it goes by."""
        return *self._pass(computation), self._encounter.get(computation, 0)

    def _pass(self, computation: HloComputation) -> Priority:
        name = computation.name
        if "_promoted" in name:
            return (2,)
        callers = {site.opcode for site in self._call_graph.callsites[computation]}
        if "custom-call" in callers:
            return (6,)
        if CLONE not in name:
            return 4, _maker(name)
        if self.is_partitioned and not callers.isdisjoint(_COLLECTIVES):
            return 1, *self._place_of[computation]
        original = self._by_name.get(_LAST_CLONE.sub("", name))
        if original is not None and self._is_flattened_last(original, computation):
            own = place_by_name(original.name.partition(CLONE)[0])
            return (5, 1, _maker(original.name)) if self._is_made(original) else (5, 0, *own)
        if any(each.opcode == "convert" for each in computation.instructions):
            return (3,)
        if self.is_partitioned:
            return 1, *self._place_of.get(computation, (0, 0))
        return 1, *place_by_name(name.partition(CLONE)[0])

    def _is_flattened_last(self, original: HloComputation, clone: HloComputation) -> bool:
        if self._is_made(original):
            return True
        if self.is_partitioned and clone.root.shape.is_tuple:
            return True
        was_cloned = clone.name + CLONE in self._by_name  # so it is older
        return original in self._reduces_windows and not was_cloned

    def _is_made(self, computation: HloComputation) -> bool:
        return CLONE not in computation.name and is_derived(computation, self._call_graph)


def _places_of_calls(call_graph: CallGraph) -> dict[HloComputation, tuple[int, int]]:
    """Where a walk through the program meets what is reduced, callees first.

    Collectives may have been combined since, and then come later.
    """
    places: dict[HloComputation, tuple[int, int]] = {}
    for number, computation in enumerate(call_graph.module.computations):
        if call_graph.is_in_flow(computation):
            time_of = {each: i for i, each in enumerate(call_graph.post_order(computation))}
            for instruction in reversed(computation.instructions):
                operands = instruction.operands
                if instruction.opcode in _COLLECTIVES:
                    operands = operands[:1]
                time = max((time_of[each] for each in operands), default=0)
                for callee in instruction.called_computations:
                    for applied in (callee, *call_graph.callees[callee]):
                        places[applied] = number, time
    return places


def _window_reducers(call_graph: CallGraph) -> set[HloComputation]:
    """What reductions of windows apply, in fused bodies or outside."""
    reducers = {
        computation
        for computation, sites in call_graph.callsites.items()
        if sites and sites[0].opcode == _WINDOW
    }
    by_name = call_graph.module.computation_by_name
    for body, callees in call_graph.callees.items():
        if callees and is_text(body, call_graph) and _WINDOW in call_graph.bodies[body].opcodes:
            calls = call_graph.bodies.search(CALL_IN_BODY, body)
            reducers.update(by_name[call[2]] for call in calls if call[1] == _WINDOW)
    return reducers


def _maker(name: str) -> int:
    matching = (i for i, each in enumerate(_MAKERS) if each.search(name))
    return next(matching, len(_MAKERS))
