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
from hlomem.analysis.instruction_order import reordered_users

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction

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


def gpu_instructions_by_age(
    computation: HloComputation, call_graph: CallGraph
) -> list[HloInstruction]:
    """The instructions of a computation, the oldest first."""
    if call_graph.is_embedded(computation):
        return computation.instructions
    return sorted(computation.instructions, key=lambda each: _age(each, call_graph))


def _age(instruction: HloInstruction, call_graph: CallGraph) -> tuple[int, int, int]:
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
    return _COPY_FUSION if _took_copy_in(whole) else _FUSION


def _took_copy_in(instruction: HloInstruction) -> bool:
    """Whether a fusion returns a copy beside what is copied."""
    if instruction.opcode != "fusion":
        return False
    results = instruction.called_computations[0].root.operands
    return any(each.opcode == "copy" for each in results)


def _step_of_bitcast(instruction: HloInstruction, _: CallGraph) -> int:
    return _BITCASTS if _is_tracked(instruction) else _FUSION


def _step_of_async(instruction: HloInstruction, _: CallGraph) -> int:
    computation = instruction.async_wrapped_computation
    is_collective = computation is not None and computation.root.opcode in _COLLECTIVE_OPCODES
    return _COLLECTIVES if is_collective else _ASYNC


_NUMBERED = frozenset({_BITCASTS, _COLLECTIVES, _ASYNC})
_OF_PROGRAM = frozenset({"parameter", "tuple", "conditional"})
_COLLECTIVES_TEXT = """
    all-gather all-reduce all-to-all collective-broadcast collective-permute ragged-all-to-all
    reduce-scatter
"""
_COLLECTIVE_OPCODES = frozenset(_COLLECTIVES_TEXT.split())
_STEP_OF: dict[str, Callable[[HloInstruction, CallGraph], int]] = {
    "async-done": _step_of_async,
    "async-start": _step_of_async,
    "bitcast": _step_of_bitcast,
    "get-tuple-element": _step_of_part,
    "tuple": _step_of_tuple,
    "while": _step_of_while,
}


def gpu_reordered_users(
    computation: HloComputation, call_graph: CallGraph
) -> dict[HloInstruction, list[HloInstruction]]:
    """The users of instructions, where XLA lists them in another order than the text does.

    Users of one kind that a pass makes one after the other are listed as they are numbered. The
    parts of a parameter are listed from last to first, and bitcasts against the order of the
    schedule; results made by copy insertion come first. In which order fusion made others the text
    does not tell.
    """
    if call_graph.is_embedded(computation):
        return reordered_users(computation, call_graph)
    reordered: dict[HloInstruction, list[HloInstruction]] = {}
    for instruction in computation.instructions:
        users = instruction.users
        if len(users) > 1:
            sorted_users = _sorted_by_kind(users)
            if sorted_users != users:
                reordered[instruction] = sorted_users
    return reordered


def _sorted_by_kind(users: list[HloInstruction]) -> list[HloInstruction]:
    """Every kind sorted within the places it has."""
    places: dict[str, list[int]] = {}
    for place, user in enumerate(users):
        kind = _kind(user)
        if kind:
            places.setdefault(kind, []).append(place)
    result = users[:]
    for kind, own_places in places.items():
        members = _sorted_members(kind, [users[place] for place in own_places])
        for place, user in zip(own_places, members, strict=True):
            result[place] = user
    result.sort(key=_rank)
    return result


def _kind(user: HloInstruction) -> str:
    """What users are numbered together with; empty for those that tell nothing."""
    opcode = user.opcode
    if opcode == "get-tuple-element":
        return opcode
    if opcode == "bitcast" and _is_tracked(user):
        return opcode
    if opcode == "fusion" and user.name.startswith(_NUMBERED_FUSIONS):
        return split_number(user.name)[0]
    return ""


def _sorted_members(kind: str, members: list[HloInstruction]) -> list[HloInstruction]:
    if kind == "bitcast":
        return members[::-1]
    members = sorted(members, key=_number)
    if kind != "get-tuple-element":
        return members
    whole = members[0].operands[0]
    if whole.opcode == "parameter" or _took_copy_in(whole):
        return members[::-1]
    if whole.opcode == "while" and min(part.tuple_index for part in members) > 0:
        # The counter was dropped, and the last part moved into its place (`Users::RemoveUser`).
        return [members[-1], *members[:-1]]
    return members


def _rank(user: HloInstruction) -> int:
    is_tracked = _is_tracked(user)
    if (user.opcode == "tuple" and user.is_root and not is_tracked) or (
        user.opcode == "bitcast" and is_tracked
    ):
        return 0
    return 2 if user.opcode == "fusion" and user.name.startswith("wrapped_") else 1


_NUMBERED_FUSIONS = ("wrapped_", "gemm_fusion_")
