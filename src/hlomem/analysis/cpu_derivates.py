"""When the CPU compiler since jaxlib 0.9 made the computations it derived from others.

`cpu_compiler.cc: RunHloPasses` clones and makes computations in this order:

1. all-reduce promotion,
2. the first flattening of the call graph, which clones all that a function called twice calls, as
   the program goes (`FlattenCallGraph`); where the program is partitioned, `SpmdPartitioner`, as a
   walk meets the collectives,
3. float normalization, whose clones convert,
4. passes that make computations anew (`_MAKERS`), the expanders of loops last,
5. the last flattening, from the oldest to the youngest: of what a pass made and several
   instructions apply, and of reductions that became several (`TreeReductionRewriter`,
   `ReduceWindowRewriter`), the first of which reduces windows,
6. comparators of the top-k that became custom calls.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.analysis.creation_order import (
    CALL_IN_BODY,
    first_calls,
    in_order_of_parameters,
    is_derived,
    is_text,
    place_by_name,
)
from hlomem.analysis.names import CLONE, PARTITIONED

if TYPE_CHECKING:
    from hlomem.analysis.call_graph import CallGraph
    from hlomem.analysis.creation_order import Priority
    from hlomem.hlo.ir import HloComputation

_WINDOW = "reduce-window"
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
    encounter = first_calls(call_graph)
    priorities = {each: (*derivates.place(each), encounter.get(each, 0)) for each in computations}
    return in_order_of_parameters(
        computations, call_graph, priorities, hurries_within_pass=derivates.is_partitioned
    )


class _Derivates:
    def __init__(self, call_graph: CallGraph) -> None:
        self._call_graph = call_graph
        self._by_name = call_graph.module.computation_by_name
        self._reduces_windows = _window_reducers(call_graph)
        self.is_partitioned = call_graph.module.entry.name.endswith(PARTITIONED)

    def place(self, computation: HloComputation) -> Priority:
        """The number of the pass, then what it goes by."""
        name = computation.name
        if "_promoted" in name:
            return (1,)
        if any(site.opcode == "custom-call" for site in self._call_graph.callsites[computation]):
            return (6,)
        if CLONE not in name:
            return 4, _maker(name)
        original = self._by_name.get(_LAST_CLONE.sub("", name))
        if original is not None and self._is_flattened_last(original, computation):
            own = place_by_name(original.name.partition(CLONE)[0])
            return (5, 1, _maker(original.name)) if self._is_made(original) else (5, 0, *own)
        if any(each.opcode == "convert" for each in computation.instructions):
            return (3,)
        return (2,) if self.is_partitioned else (2, *place_by_name(name.partition(CLONE)[0]))

    def _is_flattened_last(self, original: HloComputation, clone: HloComputation) -> bool:
        if self._is_made(original):
            return True
        was_cloned = clone.name + CLONE in self._by_name  # so it is older
        return original in self._reduces_windows and not was_cloned

    def _is_made(self, computation: HloComputation) -> bool:
        return CLONE not in computation.name and is_derived(computation, self._call_graph)


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
