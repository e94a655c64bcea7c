"""When the CPU compiler made the computations it derived from others.

`cpu_compiler.cc: RunHloPasses` clones and makes computations in this order:

0. the decomposer of top-k, which makes comparators,
1. all-reduce promotion,
2. the first flattening of the call graph, which for every further call of a function clones all
   that it calls, as the program goes (`FlattenCallGraph`); where the program is partitioned,
   `SpmdPartitioner`, as a walk meets the collectives,
3. float normalization, whose clones convert,
4. passes that make computations anew (`_MAKERS`), the expanders of loops, and those that clone
   loops again to rewrite them,
5. the last flattening, from the oldest to the youngest: of what a pass made and several
   instructions apply, and of reductions that became several (`TreeReductionRewriter`,
   `ReduceWindowRewriter`), the first of which reduces windows.

Until jaxlib 0.9.0.1 the rewriters of top-k (5), of windows (6) and of reductions (7) came last.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hlomem.analysis.creation_order import (
    CALL_IN_BODY,
    first_calls,
    in_order_of_parameters,
    is_derived,
    is_text,
    place_by_name,
)
from hlomem.analysis.names import CLONE, PARTITIONED, TOP_K_COMPARATOR, number_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.analysis.creation_order import Priority
    from hlomem.hlo.ir import HloComputation

_WINDOW = "reduce-window"
_REWRITER_OF = {_WINDOW: 6, "map": 6, "reduce": 7}
_LAST_CLONE = re.compile(r"\.clone(?:\.[0-9]+)?$")
_MAKERS = (
    re.compile(r"^add_computation"),  # `ConvolutionGroupConverter`
    re.compile(r"\.reduce_window"),  # `ReduceWindowRewriter`
    re.compile(r"^scalar_add_computation"),  # `AlgebraicSimplifier`
)
"""What passes call what they make anew, in the order of the pipeline."""


def sort_derivates(
    computations: list[HloComputation],
    call_graph: CallGraph,
    *,
    rewrites_reductions_last: bool = False,
) -> list[HloComputation]:
    """What passes derived, the oldest first."""
    if not computations:
        return []
    derivates = _Derivates(call_graph, rewrites_reductions_last)
    priorities = {each: derivates.priority(each) for each in computations}
    return in_order_of_parameters(
        computations, call_graph, priorities, hurries_within_pass=derivates.is_partitioned
    )


class _Derivates:
    def __init__(self, call_graph: CallGraph, rewrites_reductions_last: bool) -> None:
        self._call_graph = call_graph
        self._rewrites_reductions_last = rewrites_reductions_last
        self._by_name = call_graph.module.computation_by_name
        self._encounter = first_calls(call_graph)
        self._caller_of = _callers(call_graph)
        self._function_of = _functions(self._by_name)
        self.is_partitioned = call_graph.module.entry.name.endswith(PARTITIONED)

    def priority(self, computation: HloComputation) -> Priority:
        """The number of the pass, what it goes by, and when a walk meets the computation."""
        return *self._place(computation), self._encounter.get(computation, 0)

    def _place(self, computation: HloComputation) -> Priority:
        name = computation.name
        if name.startswith(TOP_K_COMPARATOR):
            return (5, 0) if CLONE in name else (0,)
        if "_promoted" in name:
            return (1,)
        if CLONE not in name:
            return 4, _maker(name)
        original = self._by_name.get(_LAST_CLONE.sub("", name))
        if original is not None:
            if self._is_rewritten(original, computation) and self._rewrites_reductions_last:
                return (_REWRITER_OF[self._caller_of[computation].opcode],)
            if self._is_rewritten(original, computation) or self._is_made(original):
                return (8 if self._rewrites_reductions_last else 5), *self._age(original)
        return self._early_place(computation)

    def _early_place(self, clone: HloComputation) -> Priority:
        original = clone.name.rpartition(CLONE)[0]
        is_cloned_again = CLONE in original
        if is_cloned_again and self._is_called_by(clone, "while"):
            return 4, len(_MAKERS) + 1
        if not is_cloned_again and any(each.opcode == "convert" for each in clone.instructions):
            return (3,)
        if self.is_partitioned:
            return (2,)
        own = original.partition(CLONE)[0]
        call = original.count(CLONE), number_of(clone)
        return 2, *self._function_of[own], *call, *place_by_name(own)

    def _age(self, original: HloComputation) -> Priority:
        """When it was made, compared with others that the last flattening cloned."""
        if is_derived(original, self._call_graph):
            return self.priority(original)
        return -1, *place_by_name(original.name)

    def _is_rewritten(self, original: HloComputation, clone: HloComputation) -> bool:
        """Whether a rewriter put both callers, the first of them a window, in the place of one.

        What was cloned again is older.
        """
        if clone.name + CLONE in self._by_name or not self._is_called_by(original, _WINDOW):
            return False
        is_new = not self._caller_of[original].has_metadata
        return is_new and self._is_called_by(clone, *_REWRITER_OF)

    def _is_called_by(self, computation: HloComputation, *opcodes: str) -> bool:
        caller = self._caller_of.get(computation)
        return caller is not None and caller.opcode in opcodes

    def _is_made(self, computation: HloComputation) -> bool:
        return CLONE not in computation.name and is_derived(computation, self._call_graph)


def _functions(names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Where the function begins that calls each of the program's own computations.

    What one function calls was cloned as often, so that the clones end alike.
    """
    ends: dict[str, set[str]] = {}
    for name in names:
        own, clone, end = name.partition(CLONE)
        if clone:
            ends.setdefault(own, set()).add(end)
    start_of: dict[frozenset[str], tuple[int, int]] = {}
    for own in sorted(ends, key=place_by_name):
        start_of.setdefault(frozenset(ends[own]), place_by_name(own))
    return {own: start_of[frozenset(each)] for own, each in ends.items()}


class _Caller(NamedTuple):
    """The instruction that applies a computation."""

    opcode: str
    has_metadata: bool
    """Those that rewriters make have none."""


def _callers(call_graph: CallGraph) -> dict[HloComputation, _Caller]:
    """What applies each computation, in fused bodies or outside."""
    caller_of = {
        computation: _Caller(sites[0].opcode, "metadata" in sites[0].attributes)
        for computation, sites in call_graph.callsites.items()
        if sites and not call_graph.is_fused(computation)
    }
    by_name = call_graph.module.computation_by_name
    for body, callees in call_graph.callees.items():
        if callees and is_text(body, call_graph):
            for match in call_graph.bodies.search(CALL_IN_BODY, body):
                caller_of.setdefault(by_name[match[2]], _Caller(match[1], match[3] is not None))
    return caller_of


def _maker(name: str) -> int:
    matching = (i for i, each in enumerate(_MAKERS) if each.search(name))
    return next(matching, len(_MAKERS))
