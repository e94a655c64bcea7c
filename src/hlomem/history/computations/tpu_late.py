"""Computations that libtpu makes after fusion: loops, copies, asynchronous operations.

In: traces. Out: the computations that a pass made, the oldest first. The bodies of fusions in a
loop are cloned together with the loop's body, just before it. Read off the pass dumps of libtpu
(docs/tpu-rules.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.names import CLONE, number_of, split_number
from hlomem.hlo.ir import MAIN_THREAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlomem.history.computations.engine import Claims
    from hlomem.history.evidence import Trace
    from hlomem.hlo.ir import HloInstruction

_SUNK = ".sunk"
_WIDENED = "wide."
_COPY_FUSION = "copy_fusion"


# Loops.


def find_widened(claims: Claims) -> Iterator[Trace]:
    """Loops, inner ones first, in the order in which fusion went through the program."""
    place = _places_in_fusion(claims)
    for loop in _loops_of(sorted(place, key=place.__getitem__)):
        if loop.called_computations[0].name.endswith(CLONE):
            continue  # as the simplifier of loops left it
        for computation in reversed(loop.called_computations):
            if computation.name.startswith(_WIDENED) and not computation.name.endswith(_SUNK):
                yield from _with_clones(claims.traces[computation])


def find_sunk(claims: Claims) -> Iterator[Trace]:
    """Bodies of loops into which constants were sunk, outer ones first."""
    outer_first = [trace for trace in claims.traces.values() if not trace.is_fused][::-1]
    for loop in _loops_of(outer_first):
        for computation in reversed(loop.called_computations):
            if computation.name.endswith(_SUNK):
                yield from _with_clones(claims.traces[computation])


def _loops_of(callers: Iterable[Trace]) -> list[HloInstruction]:
    """The loops of computations one after the other, those of one by number."""
    loops: list[HloInstruction] = []
    for caller in callers:
        here = [loop for loop in caller.computation.instructions if loop.opcode == "while"]
        loops += sorted(here, key=number_of)
    return loops


def _places_in_fusion(claims: Claims) -> dict[Trace, int]:
    """The number of the first fusion in each computation; one after its callees has theirs."""
    place: dict[Trace, int] = {}
    for trace in claims.traces.values():
        if not trace.is_fused:
            numbers = [_original_number(callee) for callee in trace.callees if callee.is_fused]
            after = [place[callee] for callee in trace.callees if callee in place]
            place[trace] = max(min(numbers, default=-1), *after, -1)
    return place


def _original_number(body: Trace) -> int:
    """The number of the body of a fusion, or of the one it was cloned from."""
    return split_number(body.name.partition(CLONE)[0])[1]


def _with_clones(trace: Trace) -> Iterator[Trace]:
    """A computation after what was cloned with it: bodies of fusions, and what was before."""
    traces = trace.module
    for instruction in traces.call_graph.post_order(trace.computation):
        for computation in instruction.called_computations:
            callee = traces[computation]
            if instruction.opcode == "fusion" and callee.is_clone:
                yield from _with_nested(callee)
            elif _is_clone_of_clone(callee):
                yield callee
    yield trace


def _with_nested(body: Trace) -> Iterator[Trace]:
    """The body of a fusion after those of the fusions in it, and what was cloned with it."""
    for callee in body.callees:
        if callee.is_fused and not callee.name.startswith(_COPY_FUSION):
            yield from _with_nested(callee)
        elif _is_clone_of_clone(callee):
            yield callee
    yield body


def _is_clone_of_clone(trace: Trace) -> bool:
    """True if it was cloned again and again with the loop it is used in."""
    return trace.is_embedded and not trace.is_fused and trace.name.count(CLONE) > 1


# Flattening of the call graph, again.


def find_flattened(claims: Claims) -> Iterator[Trace]:
    """Computations that were copied because the operation that applies it had been copied.

    The call graph is flattened twice. What operations of the program share is copied early; what
    is shared because fusion or a pass for loops copied an operation is copied after fusion.
    """
    copies_of: dict[Trace, list[Trace]] = {}
    for trace in claims.traces.values():
        if trace.original is not None and not trace.is_fused:
            copies_of.setdefault(trace.original, []).append(trace)
    for original in sorted(copies_of, key=lambda trace: trace.computation.index):
        first = _applying(original)
        for copy in sorted(copies_of[original], key=lambda trace: trace.number):
            if _is_copied(first, _applying(copy), claims):
                yield copy


def _applying(applied: Trace) -> HloInstruction | None:
    """The operation that applies a computation, in a fused body or outside."""
    if applied.caller is None:
        return None
    instructions = applied.caller.computation.instructions
    return next(site for site in instructions if applied.computation in site.called_computations)


def _is_copied(one: HloInstruction | None, other: HloInstruction | None, claims: Claims) -> bool:
    """True if one operation is a copy of the other.

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
    traces = claims.traces
    return _flow_of(traces[one.parent]) is not _flow_of(traces[other.parent])


def _flow_of(trace: Trace) -> Trace:
    """The computation that a fused body was cut out of."""
    while trace.is_fused and trace.caller is not None:
        trace = trace.caller
    return trace


# Asynchronous operations.


def is_copy_fusion(trace: Trace) -> bool:
    """True if it is the body of a fusion around a copy."""
    return trace.name.startswith(_COPY_FUSION)


def find_asynchronous(claims: Claims) -> Iterator[Trace]:
    """Computations of asynchronous operations, each after all that it calls."""
    found = [trace for trace in claims.traces.values() if _is_asynchronous(trace)]
    for trace in sorted(found, key=_number_inside):
        yield from _with_all_callees(trace)


def _is_asynchronous(trace: Trace) -> bool:
    return bool(trace.sites) and trace.sites[0].opcode == "async-start"


def _number_inside(trace: Trace) -> int:
    """The number of what runs asynchronously, where it is more than one instruction."""
    inside = [callee for callee in trace.callees if not callee.is_fused]
    return (inside[0] if inside else trace).number


def _with_all_callees(trace: Trace) -> Iterator[Trace]:
    """An asynchronous computation after all that it calls.

    What runs on a sparse core was moved into a module of its own and back: its reducers are copies.
    """
    for callee in trace.callees:
        is_copy = callee.computation.execution_thread != MAIN_THREAD
        if not trace.is_fused or callee.is_fused or is_copy:
            yield from _with_all_callees(callee)
    yield trace
