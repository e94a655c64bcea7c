"""In which order the GPU compiler made the instructions of a computation.

As `instruction_order.py`, for the passes of `service/gpu/gpu_compiler.cc`. One of them tells the
old from the new: before fusion `AddTrackingSuffixToInstructionNames` puts `.0` behind the names of
all that might be fused. What is asked about is what hands values on; in order:

1. what the program came with, loops and branches included,
2. what passes made before fusion: parts of results, new operands of branches,
3. bitcasts of that time, numbered,
4. what fusion and the combiners of collectives made: parts of their results, and bitcasts,
5. asynchronous collectives, numbered,
6. copy insertion: a new tuple for the start of a loop, new parts of its parameter, new results,
7. parts of fusions that took a copy in (`CopyFusion`),
8. other asynchronous operations, numbered.

Within one step the order is that of the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.analysis.creation_order import is_derived, split_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloInstruction

(
    _PROGRAM,
    _PASSES,
    _BITCASTS,
    _FUSION,
    _COLLECTIVES,
    _LOOP_STARTS,
    _LOOP_PARTS,
    _RESULTS,
    _COPY_FUSION,
    _ASYNC,
) = range(10)

_TRACKED = ".0"


def gpu_age(instruction: HloInstruction, call_graph: CallGraph) -> tuple[int, int, int]:
    """A key to sort the instructions of a computation by, the oldest first."""
    find_step = _STEP_OF.get(instruction.opcode)
    step = _PROGRAM if find_step is None else find_step(instruction, call_graph)
    number = _number(instruction) if step in _NUMBERED else 0
    if step == _LOOP_PARTS:
        number = instruction.tuple_index
    return step, number, instruction.index


def _number(instruction: HloInstruction) -> int:
    return split_number(instruction.name.removesuffix(_TRACKED))[1]


def _is_tracked(instruction: HloInstruction) -> bool:
    """Whether it was there before fusion."""
    return instruction.name.endswith(_TRACKED)


def _step_of_tuple(instruction: HloInstruction, _: CallGraph) -> int:
    if _is_tracked(instruction):
        is_new = not instruction.is_root and instruction.name.startswith("tuple.")
        return _PASSES if is_new else _PROGRAM
    if any(user.opcode == "while" for user in instruction.users):
        return _LOOP_STARTS
    return _RESULTS


def _step_of_while(instruction: HloInstruction, call_graph: CallGraph) -> int:
    return _PASSES if is_derived(instruction.called_computations[0], call_graph) else _PROGRAM


def _step_of_part(instruction: HloInstruction, call_graph: CallGraph) -> int:
    whole = instruction.operands[0]
    if whole.opcode == "while":
        is_new = _is_tracked(instruction) and instruction.name.startswith(instruction.opcode)
        return _PASSES if is_new else _step_of_while(whole, call_graph)
    if _is_tracked(instruction):
        return _PROGRAM if whole.opcode in _OF_PROGRAM else _PASSES
    if whole.opcode == "parameter":
        sites = call_graph.callsites[whole.parent]
        return _LOOP_PARTS if any(site.opcode == "while" for site in sites) else _PROGRAM
    if whole.opcode == "tuple":
        return _RESULTS
    if whole.opcode == "fusion":
        results = whole.called_computations[0].root.operands
        return _COPY_FUSION if any(each.opcode == "copy" for each in results) else _FUSION
    return _FUSION


def _step_of_bitcast(instruction: HloInstruction, _: CallGraph) -> int:
    return _BITCASTS if _is_tracked(instruction) else _FUSION


def _step_of_async(instruction: HloInstruction, _: CallGraph) -> int:
    return _ASYNC if instruction.name.startswith("fusion-") else _COLLECTIVES


_NUMBERED = frozenset({_BITCASTS, _COLLECTIVES, _ASYNC})
_OF_PROGRAM = frozenset({"parameter", "tuple", "conditional"})
_STEP_OF: dict[str, Callable[[HloInstruction, CallGraph], int]] = {
    "async-done": _step_of_async,
    "async-start": _step_of_async,
    "bitcast": _step_of_bitcast,
    "get-tuple-element": _step_of_part,
    "tuple": _step_of_tuple,
    "while": _step_of_while,
}


def gpu_users(computation, call_graph):
    reordered = {}
    for instruction in computation.instructions:
        users = instruction.users
        if len(users) > 1:
            kinds = [_user_kind(user) for user in users]
            if any(kinds):
                reordered[instruction] = _sorted_in_kinds(users, kinds)
    return reordered


def _user_kind(user):
    opcode = user.opcode
    if opcode == "get-tuple-element":
        whole = user.operands[0]
        if whole.opcode == "parameter":
            return "-gte"
        if whole.opcode == 'fusion' and not _is_tracked(user):
            results = whole.called_computations[0].root.operands
            return "-gte" if any(each.opcode == "copy" for each in results) else "+gte"
        return "+gte"
    if opcode == "fusion":
        if user.name.startswith("wrapped_"):
            return "+wrapped"
        if user.name.startswith("gemm_fusion"):
            return "+"+split_number(user.name)[0]
        return ""
    if opcode == "bitcast" and _is_tracked(user):
        return "-bitcast"
    if opcode == "tuple" and user.is_root and not _is_tracked(user):
        return "root"
    return ""


def _sorted_in_kinds(users, kinds):
    slots = {}
    for place, kind in enumerate(kinds):
        if kind and kind != "root":
            slots.setdefault(kind, []).append(place)
    result = list(users)
    for kind, places in slots.items():
        members = [users[p] for p in places]
        if kind == "-bitcast":
            members.reverse()
        else:
            members.sort(key=_number, reverse=kind[0] == "-")
            w = members[0].operands[0] if members[0].operands else None
            if kind == "+gte" and w.opcode == "while" and min(m.tuple_index for m in members) > 0:
                members = [members[-1], *members[:-1]]
        for p, u in zip(places, members):
            result[p] = u
    def rank(u):
        k = _user_kind(u)
        return 0 if k in ("root", "-bitcast") else 2 if k == "+wrapped" else 1
    result.sort(key=rank)
    return result
