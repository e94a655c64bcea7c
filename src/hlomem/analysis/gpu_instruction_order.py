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
        return _LOOP_PARTS if _is_of_loop(whole.parent, call_graph) else _PROGRAM
    if whole.opcode == "tuple":
        return _RESULTS
    return _COPY_FUSION if _took_copy_in(whole, call_graph) else _FUSION


def _took_copy_in(instruction: HloInstruction, call_graph: CallGraph) -> bool:
    """Whether a fusion returns a copy beside what is copied."""
    if instruction.opcode != "fusion":
        return False
    body = instruction.called_computations[0]
    if "copy" not in call_graph.bodies[body].opcodes:
        return False
    return any(each.opcode == "copy" for each in body.root.operands)


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

    Fusion lists users about as a walk through the operands meets them; which of two it took first,
    the text does not tell. Where a pass makes several of a kind, their numbers or places do.
    """
    if call_graph.is_embedded(computation):
        return reordered_users(computation, call_graph)
    lists = _Lists(computation, call_graph)
    reordered: dict[HloInstruction, list[HloInstruction]] = {}
    for instruction in computation.instructions:
        users = instruction.users
        if len(users) > 1:
            sorted_users = lists.sorted_users(instruction)
            if sorted_users != users:
                reordered[instruction] = sorted_users
    return reordered


class _Lists:
    """The lists of users of one computation."""

    def __init__(self, computation: HloComputation, call_graph: CallGraph) -> None:
        self._call_graph = call_graph
        self._is_of_loop = _is_of_loop(computation, call_graph)
        self._place_in_walk = {
            each: place for place, each in enumerate(call_graph.post_order(computation))
        }

    def sorted_users(self, instruction: HloInstruction) -> list[HloInstruction]:
        """Every kind of users sorted within the places it has in the text."""
        users = instruction.users
        places: dict[str, list[int]] = {}
        for place, user in enumerate(users):
            places.setdefault(_kind(user), []).append(place)
        result = users[:]
        for kind, own_places in places.items():
            members = self._sorted_members(kind, [users[place] for place in own_places])
            for place, user in zip(own_places, members, strict=True):
                result[place] = user
        is_handed_on = self._is_handed_on(instruction)
        result.sort(key=lambda user: _rank(user, is_handed_on))
        return result

    def _sorted_members(self, kind: str, members: list[HloInstruction]) -> list[HloInstruction]:
        if not kind or len(members) == 1:
            return members
        if kind == "bitcast":
            return members[::-1]
        if kind == "fusion":
            return sorted(members, key=self._place_in_walk.__getitem__)
        if kind == "get-tuple-element":
            return self._sorted_parts(members)
        return sorted(members, key=_number)

    def _sorted_parts(self, parts: list[HloInstruction]) -> list[HloInstruction]:
        whole = parts[0].operands[0]
        if whole.opcode == "custom-call":
            return sorted(parts, key=_number)
        if whole.opcode == "while":
            return _sorted_parts_of_loop(parts)
        parts = sorted(parts, key=lambda part: part.tuple_index)
        is_parameter_of_loop = self._is_of_loop and whole.opcode == "parameter"
        is_reversed = is_parameter_of_loop or _took_copy_in(whole, self._call_graph)
        return parts[::-1] if is_reversed else parts

    def _is_handed_on(self, instruction: HloInstruction) -> bool:
        """Whether copy insertion put it into a new result before anything else used it again."""
        if instruction.opcode == "parameter":
            return True
        return (
            self._is_of_loop
            and instruction.opcode == "get-tuple-element"
            and instruction.operands[0].opcode == "parameter"
            and len(instruction.users) == _WITH_ONE_READER
        )


def _is_of_loop(computation: HloComputation, call_graph: CallGraph) -> bool:
    return any(site.opcode == "while" for site in call_graph.callsites[computation])


def _kind(user: HloInstruction) -> str:
    """What a user is sorted together with; empty for those that stay where they are."""
    opcode = user.opcode
    if opcode == "fusion" and user.name.startswith(_NUMBERED_FUSIONS):
        return split_number(user.name)[0]
    if opcode in ("fusion", "get-tuple-element") or (opcode == "bitcast" and _is_tracked(user)):
        return opcode
    return ""


def _sorted_parts_of_loop(parts: list[HloInstruction]) -> list[HloInstruction]:
    """As numbered; but where the program's own counter was dropped, the last took its place."""
    parts = sorted(parts, key=_number)
    is_own = not parts[0].name.startswith(parts[0].opcode)
    if is_own and min(part.tuple_index for part in parts) > 0:
        return [parts[-1], *parts[:-1]]  # `Users::RemoveUser`
    return parts


def _rank(user: HloInstruction, is_handed_on: bool) -> int:
    """Whether a user comes before or after those of other kinds."""
    is_tracked = _is_tracked(user)
    if is_handed_on and user.opcode == "tuple" and user.is_root and not is_tracked:
        return 0
    if user.opcode == "bitcast" and is_tracked:
        return 1
    return 3 if user.opcode == "fusion" and user.name.startswith(_WRAPPED) else 2


_WRAPPED = "wrapped_"
_NUMBERED_FUSIONS = (_WRAPPED, "gemm_fusion_")
_WITH_ONE_READER = 2
