"""Computations that libtpu makes after fusion: loops, copies, asynchronous operations.

In: traces. Out: the computations that a pass made, the oldest first. The bodies of fusions in a
loop are cloned together with the loop's body, just before it. Read off the pass dumps of libtpu
(docs/tpu-rules.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.computations.incremental_order import NONE_VANISHED, Vanished
from hlomem.history.computations.partitioner import is_cloned_for_partitions
from hlomem.history.names import CLONE, SUNK, WIDENED, flow_name, number_of, split_number
from hlomem.hlo.ir import MAIN_THREAD, HloComputation, HloInstruction
from hlomem.hlo.opcodes import RUN_IN_PLACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.history.computations.engine import Claims
    from hlomem.history.evidence import Trace, Traces

_COPY_FUSION = "copy_fusion"
BITCAST_FUSION = "bitcast_fusion"


# Loops.


def find_widened(claims: Claims) -> Iterator[Trace]:
    """Loops in the order in which they were widened: conditions are rebuilt, and numbered so.

    A loop whose condition reads nothing of its state stays after those inside it.
    """
    loops = [
        loop
        for caller in claims.traces.values()
        for loop in _loops_in(caller)
        if not loop.called_computations[0].name.endswith(CLONE)  # as their simplifier left them
    ]
    traces = claims.traces
    for loop in sorted(loops, key=lambda loop: traces[loop.called_computations[1]].loop_number):
        for computation in reversed(loop.called_computations):
            if computation.name.startswith(WIDENED) and not computation.name.endswith(SUNK):
                yield from _with_clones(traces[computation])


def find_sunk(claims: Claims) -> Iterator[Trace]:
    """Bodies of loops into which constants were sunk, outer ones first, the last first."""
    agenda = [claims.traces.entry]
    visited: set[Trace] = set()
    while agenda:
        caller = agenda.pop()
        if caller in visited:
            continue
        visited.add(caller)
        for loop in _loops_in(caller):
            for computation in reversed(loop.called_computations):
                if computation.name.endswith(SUNK):
                    yield from _with_clones(claims.traces[computation])
        agenda += _callees_as_listed(caller)


def _callees_as_listed(caller: Trace) -> list[Trace]:
    """The computations that one runs, loops by number and others as they stand in the text."""
    loops = iter(_loops_in(caller))
    callees: list[Trace] = []
    for instruction in caller.computation.instructions:
        if instruction.opcode in RUN_IN_PLACE:
            listed = next(loops) if instruction.opcode == "while" else instruction
            callees += [caller.module[callee] for callee in listed.called_computations]
    return callees


def _loops_in(caller: Trace) -> list[HloInstruction]:
    """The loops of a computation by number; one without any, as most fused bodies, is not read."""
    computation = caller.computation
    if not any(call.opcode == "while" for call in computation.calls()):
        return []
    loops = [loop for loop in computation.instructions if loop.opcode == "while"]
    return sorted(loops, key=number_of)


def _with_clones(trace: Trace) -> Iterator[Trace]:
    """A computation after what was cloned with it: bodies of fusions, and what was before."""
    traces = trace.module
    for instruction in traces.call_graph.post_order(trace.computation):
        for computation in instruction.called_computations:
            callee = traces[computation]
            if instruction.opcode in _COPIED_WITH_CALLER and callee.is_clone:
                yield from _with_nested(callee)
            elif _is_clone_of_clone(callee):
                yield callee
    yield trace


_COPIED_WITH_CALLER = ("fusion", "custom-call")


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
    is_cloned_again = trace.name.count(CLONE) > 1 and not is_flattened_clone(trace)
    return trace.is_embedded and not trace.is_fused and is_cloned_again


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
    for original in sorted(copies_of, key=_age):
        first = _applying(original)
        for copy in sorted(copies_of[original], key=lambda trace: trace.number):
            is_older = is_cloned_for_partitions(copy) or _is_copied_early(copy, original)
            if not is_older and _is_copied(first, _applying(copy), claims):
                yield copy


def _age(trace: Trace) -> tuple[bool, int, int, int]:
    """The program's own are older than what passes made."""
    return trace.is_derived, *trace.place_in_program, trace.computation.index


def is_flattened_clone(trace: Trace) -> bool:
    """True if it is a copy of a clone that is still there: both have a caller."""
    original = trace.original
    return original is not None and original.is_clone


def _is_copied_early(copy: Trace, original: Trace) -> bool:
    """True if operations were copied before fusion: with a function, or out of a pipelined loop.

    What runs the copy is then a copy of what runs the original, or one of both is such a loop.
    """
    callers = [trace.site_in_flow[0] for trace in (original, copy)]
    own, copied = (flow_name(trace.name).partition(CLONE)[0] for trace in callers)
    is_function = own == copied and callers[0] is not callers[1]
    return is_function or any(map(_is_pipelined, callers))


def _is_pipelined(body: Trace) -> bool:
    """True if a collective pipeliner made the loop, which runs some iterations outside."""
    return any(
        condition.first_parameter_name.removeprefix(WIDENED).startswith(_PIPELINED_STATES)
        for loop in body.sites
        if loop.opcode == "while"
        for condition in loop.called_computations
    )


_PIPELINED_STATES = ("loop_peel_", "cond_param")


def _applying(applied: Trace) -> HloInstruction | None:
    """The operation that applies a computation, in a fused body or outside."""
    if applied.caller is None:
        return None
    instructions = applied.caller.computation.instructions
    return next(site for site in instructions if applied.computation in site.called_computations)


def _is_copied(one: HloInstruction | None, other: HloInstruction | None, claims: Claims) -> bool:
    """True if one operation is a copy of the other.

    Both come from the same line of the program then, but a line of the program may also make the
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
    return trace.name.startswith(_COPY_FUSION)


def find_asynchronous(claims: Claims) -> Iterator[Trace]:
    """Computations of asynchronous operations, each after all that it calls."""
    found = [trace for trace in claims.traces.values() if _is_asynchronous(trace)]
    for trace in sorted(found, key=_number_inside):
        yield from _with_all_callees(trace)


def _is_asynchronous(trace: Trace) -> bool:
    return bool(trace.sites) and trace.sites[0].opcode == "async-start"


def _number_inside(trace: Trace) -> tuple[int, int]:
    """The number of the parameter of what runs asynchronously, then its own.

    Parameters are numbered as they are made; what runs on a sparse core is more than one
    instruction, and was rebuilt after the computation around it.
    """
    inside = [callee for callee in trace.callees if not callee.is_fused]
    made = inside[0] if inside else trace
    return made.parameter_number, made.number


def _with_all_callees(trace: Trace) -> Iterator[Trace]:
    """An asynchronous computation after its callees; reducers on a sparse core are copies."""
    for callee in trace.callees:
        is_copy = callee.computation.execution_thread != MAIN_THREAD
        if not trace.is_fused or callee.is_fused or is_copy:
            yield from _with_all_callees(callee)
    yield trace


# Fusions that were merged: a producer is taken into its consumer, which keeps both results, and the
# copy of its body is gone. The incremental order puts the caller of what is new last.


def merged_fusions(created: list[HloComputation], traces: Traces) -> Vanished:
    """The copies of producers' bodies, by the numbers of the fusions that took them in.

    Only loops and branches that no later pass rebuilt can have been moved by them for good.
    """
    older_count = _main_fusion_end([traces[computation] for computation in created])
    merged: list[tuple[int, HloComputation]] = []
    for computation in created[:older_count]:
        trace = traces[computation]
        if trace.is_in_flow and trace is not traces.entry:
            bodies = [callee for callee in trace.callees if callee.is_fused]
            merged += [(body.number, computation) for body in bodies if _has_taken_producer(body)]
    merged.sort(key=lambda entry: entry[0])
    return Vanished(older_count, [caller for _, caller in merged]) if merged else NONE_VANISHED


def _main_fusion_end(created: list[Trace]) -> int:
    """The number of computations made before producers were taken in.

    After that come fusions that are made of two which stood side by side, and have no names that
    tell of their work, and those of bitcasts and copies.
    """
    for rank in range(len(created), 0, -1):
        trace = created[rank - 1]
        is_main = trace.is_fused and not trace.is_clone and trace.name.startswith(_MAIN_FUSION)
        if is_main and not _is_made_of_siblings(trace):
            return rank
    return 0


def _is_made_of_siblings(body: Trace) -> bool:
    names = (split_number(site.name)[0] for site in body.sites)
    return _has_several_results(body) and all(name == _NAMELESS_FUSION for name in names)


def _has_several_results(body: Trace) -> bool:
    return any(site.shape.is_tuple for site in body.sites)


def _has_taken_producer(body: Trace) -> bool:
    """True if a fusion has several results, one of them made of another that was cloned into it."""
    return _has_several_results(body) and any(
        CLONE in result.name and any(user.opcode != "tuple" for user in result.users)
        for result in body.computation.root.operands
    )


_MAIN_FUSION = "fused_computation"
_NAMELESS_FUSION = "fusion"
