"""In which order instructions list their users after the passes of the GPU compiler.

In: a computation. Out: the users of its instructions, where that is not the order of the text. The
lists in a dump follow them. Fusion lists users about as a walk through the operands meets them
(`priority_fusion.cc` goes by estimated cost, so which of two it took first the text does not tell);
where a pass makes several of a kind, their numbers or places do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.instructions.cpu import users_in_post_order
from hlomem.history.instructions.gpu import (
    is_of_loop,
    is_tracked,
    name_number,
    took_copy_in,
)
from hlomem.history.names import CLONE, split_number

if TYPE_CHECKING:
    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction


def gpu_reordered_users(
    computation: HloComputation, call_graph: CallGraph
) -> dict[HloInstruction, list[HloInstruction]]:
    """The users of instructions, where XLA lists them in another order than the text does."""
    if call_graph.is_embedded(computation):
        return _users_in_comparator(computation, call_graph)
    lists = _Lists(computation, call_graph)
    reordered: dict[HloInstruction, list[HloInstruction]] = {}
    for instruction in computation.instructions:
        users = instruction.users
        if len(users) > 1:
            sorted_users = lists.sorted_users(instruction)
            if sorted_users != users:
                reordered[instruction] = sorted_users
    return reordered


def _users_in_comparator(
    computation: HloComputation, call_graph: CallGraph
) -> dict[HloInstruction, list[HloInstruction]]:
    """The users in a computation that runs inside one operation, as it came; but one pass cuts in.

    `ComparisonExpander` compares floats as integers: of each side it makes a bitcast, an xor, a
    comparison and a select, in this order, and both sides then share the constants of the right.
    """
    reordered = users_in_post_order(computation, call_graph)
    for instruction, users in reordered.items():
        opcodes = {user.opcode for user in users}
        if opcodes == set(_EXPANDED):
            users.sort(key=lambda user: _EXPANDED.index(user.opcode))
        elif instruction.opcode == "constant" and all(map(_reads_bitcast, users)):
            users.reverse()
    return reordered


_EXPANDED = ("xor", "compare", "select")


def _reads_bitcast(user: HloInstruction) -> bool:
    return any(operand.opcode == "bitcast" for operand in user.operands)


class _Lists:
    """The lists of users of one computation."""

    def __init__(self, computation: HloComputation, call_graph: CallGraph) -> None:
        self._call_graph = call_graph
        self._is_of_loop = is_of_loop(computation, call_graph)
        self._is_rewritten = computation.name.count(CLONE) > 1
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
        return sorted(members, key=name_number)

    def _sorted_parts(self, parts: list[HloInstruction]) -> list[HloInstruction]:
        whole = parts[0].operands[0]
        if whole.opcode == "custom-call":
            return sorted(parts, key=name_number)
        if whole.opcode == "while":
            return _sorted_parts_of_loop(parts)
        parts = sorted(parts, key=lambda part: part.tuple_index)
        is_parameter_of_loop = self._is_of_loop and whole.opcode == "parameter"
        is_reversed = is_parameter_of_loop or took_copy_in(whole, self._call_graph)
        return parts[::-1] if is_reversed else parts

    def _is_handed_on(self, instruction: HloInstruction) -> bool:
        """Whether copy insertion put it into a new result before anything else used it again."""
        if instruction.opcode == "parameter":
            return True
        return (
            self._is_of_loop
            and not self._is_rewritten
            and instruction.opcode == "get-tuple-element"
            and instruction.operands[0].opcode == "parameter"
            and len(instruction.users) == _WITH_ONE_READER
        )


def _kind(user: HloInstruction) -> str:
    """What a user is sorted together with; empty for those that stay where they are."""
    opcode = user.opcode
    is_numbered = opcode == "fusion" and user.name.startswith(_NUMBERED_FUSIONS)
    if is_numbered or opcode == "custom-call":
        return f"numbered {split_number(user.name)[0]}"
    if opcode in ("fusion", "get-tuple-element") or (opcode == "bitcast" and is_tracked(user)):
        return opcode
    return ""


def _sorted_parts_of_loop(parts: list[HloInstruction]) -> list[HloInstruction]:
    """As numbered; but where the program's own counter was dropped, the last took its place."""
    parts = sorted(parts, key=name_number)
    is_own = not parts[0].name.startswith(parts[0].opcode)
    if is_own and min(part.tuple_index for part in parts) > 0:
        return [parts[-1], *parts[:-1]]  # `Users::RemoveUser`
    return parts


def _rank(user: HloInstruction, is_handed_on: bool) -> int:
    """Whether a user comes before or after those of other kinds."""
    if is_handed_on and user.opcode == "tuple" and user.is_root and not is_tracked(user):
        return 0
    if user.opcode == "bitcast" and is_tracked(user):
        return 1
    return 3 if user.opcode == "fusion" and user.name.startswith(_WRAPPED) else 2


_WRAPPED = "wrapped_"
_NUMBERED_FUSIONS = (_WRAPPED, "gemm_fusion_")
_WITH_ONE_READER = 2
