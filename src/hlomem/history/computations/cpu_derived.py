"""When the CPU compiler made the computations it derived from others.

`cpu_compiler.cc: RunHloPasses` clones and makes computations in this order:

0. the decomposer of top-k, which makes comparators; after the partitioner, if there is one,
1. the first flattening of the call graph, which for every further call of a function clones all
   that it calls, as the program goes (`FlattenCallGraph`); where the program is partitioned,
   `SpmdPartitioner`, for collectives by their channels,
2. all-reduce promotion,
3. float normalization, whose clones convert,
4. passes that make computations anew (`_MAKERS`), the expanders of loops, and those that clone
   loops again to rewrite them,
5. the last flattening, from the oldest to the youngest: of what a pass made and several
   instructions apply, and of reductions that became several: with windows reduced first
   (`TreeReductionRewriter`, `ReduceWindowRewriter`), or, where they have several results, one for
   each partition's part (`SpmdPartitioningVisitor::HandleReduce`).

Until jaxlib 0.9.0.1 the rewriters of top-k (5), of windows (6) and of reductions (7) came last.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hlomem.history.computations.creation import (
    channel_of,
    first_calls,
    in_order_of_parameters,
    is_derived,
    place_by_name,
)
from hlomem.history.names import CLONE, PARTITIONED, TOP_K_COMPARATOR, number_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.history.computations.creation import Priority
    from hlomem.hlo.ir import HloComputation

_WINDOW = "reduce-window"
_CLONED_BY_PARTITIONER = frozenset({"all-reduce", "all-reduce-start", "reduce-scatter", "scatter"})
_REWRITER_OF = {_WINDOW: 6, "map": 6, "reduce": 7}
_OP_NAME = re.compile(r' metadata=\{(?:op_type="[^"\n]*" )?op_name="[^"]')
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
    derivates = _Derivates(computations, call_graph, rewrites_reductions_last)
    for original_first in sorted(computations, key=lambda each: len(each.name)):
        derivates.priority(original_first)  # so that no long chain of clones is followed at once
    priorities = {each: derivates.priority(each) for each in computations}
    return in_order_of_parameters(
        computations, call_graph, priorities, hurries_within_pass=derivates.is_partitioned
    )


class _Derivates:
    def __init__(
        self,
        computations: list[HloComputation],
        call_graph: CallGraph,
        rewrites_reductions_last: bool,
    ) -> None:
        self._priorities: dict[HloComputation, Priority] = {}
        self._call_graph = call_graph
        self._rewrites_reductions_last = rewrites_reductions_last
        self._by_name = call_graph.module.computation_by_name
        self._encounter = first_calls(call_graph)
        originals = {self._original(each) for each in computations}
        self._caller_of = _callers({*computations, *originals}, call_graph)
        self._function_of = _functions(each.name for each in computations)
        self.is_partitioned = call_graph.module.entry.name.endswith(PARTITIONED)
        self._place_of_call = _places_of_calls(call_graph) if self.is_partitioned else {}

    def priority(self, computation: HloComputation) -> Priority:
        """The number of the pass, what it goes by, and when a walk meets the computation."""
        known = self._priorities.get(computation)
        if known is None:
            known = *self._place(computation), self._encounter.get(computation, 0)
            self._priorities[computation] = known
        return known

    def _place(self, computation: HloComputation) -> Priority:
        name = computation.name
        if name.startswith(TOP_K_COMPARATOR):
            if CLONE in name:
                return 5, 0
            return (2, -1) if self.is_partitioned else (0,)
        if "_promoted" in name:
            return (2,)
        if CLONE not in name:
            return 4, _maker(name)
        if self.is_partitioned and self._is_called_by(computation, *_CLONED_BY_PARTITIONER):
            return self._place_in_partitioner(computation)
        original = self._original(computation)
        if original is not None:
            if self._is_rewritten(original, computation) and self._rewrites_reductions_last:
                return (_REWRITER_OF[self._caller_of[computation].opcode],)
            if self._is_doubled(original, computation):
                return (8 if self._rewrites_reductions_last else 5), *self._age(original)
        return self._early_place(computation)

    def _early_place(self, clone: HloComputation) -> Priority:
        original = clone.name.rpartition(CLONE)[0]
        is_cloned_again = CLONE in original
        if is_cloned_again and self._is_called_by(clone, "while"):
            return 4, len(_MAKERS) + 1
        if not is_cloned_again and self._is_normalized(clone, original):
            return (3, *place_by_name(original)) if self.is_partitioned else (3,)
        if self.is_partitioned:
            return self._place_in_partitioner(clone)
        own = original.partition(CLONE)[0]
        call = original.count(CLONE), number_of(clone)
        return 1, *self._function_of[own], *call, *place_by_name(own)

    def _place_in_partitioner(self, clone: HloComputation) -> Priority:
        return 1, *self._place_of_call.get(clone, (0, 0))

    def _is_normalized(self, clone: HloComputation, original: str) -> bool:
        """Whether it converts, or was cloned to convert: for a collective the original stays."""
        is_replaced = self.is_partitioned and original not in self._by_name
        return is_replaced or any(each.opcode == "convert" for each in clone.instructions)

    def _age(self, original: HloComputation) -> Priority:
        """When it was made, compared with others that the last flattening cloned."""
        if is_derived(original, self._call_graph):
            return self.priority(original)
        return -1, *place_by_name(original.name)

    def _original(self, clone: HloComputation) -> HloComputation | None:
        """What it was cloned from, if that is still there."""
        return self._by_name.get(_LAST_CLONE.sub("", clone.name)) if CLONE in clone.name else None

    def _is_doubled(self, original: HloComputation, clone: HloComputation) -> bool:
        """Whether two came to apply the original only after the first flattening."""
        is_partial = self.is_partitioned and clone.root.shape.is_tuple
        return is_partial or self._is_made(original) or self._is_rewritten(original, clone)

    def _is_rewritten(self, original: HloComputation, clone: HloComputation) -> bool:
        """Whether a rewriter put both callers, the first of them a window, in the place of one.

        What was cloned again is older.
        """
        if clone.name + CLONE in self._by_name or not self._is_called_by(original, _WINDOW):
            return False
        is_new = not self._caller_of[original].has_op_name
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


def _places_of_calls(call_graph: CallGraph) -> dict[HloComputation, tuple[int, int]]:
    """When the partitioner met calls: it counts the channels of collectives.

    Others come before the first channel whose operand is scheduled later: not the collective
    itself, which may have been combined with others since.
    """
    channels: dict[HloComputation, int] = {}
    time_of_call: dict[HloComputation, tuple[int, int]] = {}
    for number, computation in enumerate(call_graph.module.computations):
        if not call_graph.is_in_flow(computation):
            continue
        time_of = {each: time for time, each in enumerate(computation.instructions)}
        for instruction in reversed(computation.instructions):
            channel = channel_of(instruction)
            operands = instruction.operands if channel is None else instruction.operands[:1]
            time = number, max((time_of[each] for each in operands), default=0)
            for callee in instruction.called_computations:
                if channel is not None:
                    channels[callee] = channel
                for applied in (callee, *call_graph.callees[callee]):
                    time_of_call[applied] = time
    places: dict[HloComputation, tuple[int, int]] = {}
    next_channel = _NO_CHANNEL
    for callee in sorted(time_of_call, key=time_of_call.__getitem__, reverse=True):
        channel = channels.get(callee)
        places[callee] = (next_channel, 0) if channel is None else (channel, 1)
        next_channel = min(next_channel, channel or _NO_CHANNEL)
    return places


_NO_CHANNEL = 1 << 62


class _Caller(NamedTuple):
    """The instruction that applies a computation."""

    opcode: str
    has_op_name: bool
    """Those that rewriters make have none."""


def _callers(
    wanted: set[HloComputation | None], call_graph: CallGraph
) -> dict[HloComputation, _Caller]:
    """What applies each of the computations that are wanted, in fused bodies or outside."""
    caller_of = {
        computation: _Caller(sites[0].opcode, bool(sites[0].metadata.op_name))
        for computation, sites in call_graph.callsites.items()
        if sites and computation in wanted and not call_graph.is_fused(computation)
    }
    for body, callees in call_graph.callees.items():
        if not wanted.isdisjoint(callees) and call_graph.is_fused(body):
            for call in (each for each in body.calls() if each.opcode != "fusion"):
                caller = _Caller(call.opcode, _OP_NAME.search(call.attribute_text) is not None)
                caller_of |= {
                    each: caller for each in call.called_computations if each not in caller_of
                }
    return caller_of


def _maker(name: str) -> int:
    matching = (i for i, each in enumerate(_MAKERS) if each.search(name))
    return next(matching, len(_MAKERS))
