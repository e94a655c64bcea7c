"""In which order libtpu lists instructions and their users, as far as the text tells.

A removed user's place is taken by the last one (`HloInstruction::Users::RemoveUser`), so the lists
tell what the passes did last (docs/tpu-rules.md):

1. modules are read in post-order, and users stand in it,
2. parts of results are made together, in the order of their numbers; where one was dropped, the
   last part stands in its place. The body of a loop takes its parameter apart from the last part to
   the first,
3. memory-space assignment appends copies to the users of what it copies; then those that read the
   copy from now on are removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.instructions.cpu import instructions_by_age
from hlomem.history.names import number_of

if TYPE_CHECKING:
    from hlomem.analysis.call_graph import CallGraph
    from hlomem.hlo.ir import HloComputation, HloInstruction


def tpu_reordered_users(
    computation: HloComputation, call_graph: CallGraph
) -> dict[HloInstruction, list[HloInstruction]]:
    """The users of instructions that have several."""
    rank = {each: i for i, each in enumerate(call_graph.post_order(computation))}
    reordered: dict[HloInstruction, list[HloInstruction]] = {}
    for instruction in computation.instructions:
        users = instruction.users
        if len(users) < _SEVERAL:
            continue
        if all(user.opcode == "get-tuple-element" for user in users):
            reordered[instruction] = _parts(instruction, call_graph)
        else:
            reordered[instruction] = _after_copies(instruction, rank)
    return reordered


def tpu_instructions_by_age(
    computation: HloComputation, call_graph: CallGraph
) -> list[HloInstruction]:
    """The instructions of a computation as the passes made them."""
    return _with_copies_last(instructions_by_age(computation, call_graph))


def tpu_instructions_read_anew(
    computation: HloComputation, call_graph: CallGraph
) -> list[HloInstruction]:
    """The instructions of a computation that was read anew in post-order."""
    return _with_copies_last(call_graph.post_order(computation))


def _with_copies_last(listed: list[HloInstruction]) -> list[HloInstruction]:
    """What memory-space assignment made comes last."""
    made = {each for each in listed if each.opcode in _MADE_BY_MSA}
    if not made:
        return listed
    for each in listed:
        if each.opcode in _MADE_ANEW and not each.is_root and not made.isdisjoint(each.operands):
            made.add(each)
    return sorted(listed, key=made.__contains__)


_MADE_BY_MSA = frozenset({"copy-start", "copy-done", "async-start", "async-done"})
_MADE_ANEW = frozenset({"bitcast", "get-tuple-element", "tuple"})
"""What it makes again for what it has moved."""
_SEVERAL = 2


def _parts(whole: HloInstruction, call_graph: CallGraph) -> list[HloInstruction]:
    if whole.opcode == "parameter":
        is_condition = any(
            site.opcode == "while" and site.called_computations[1] is whole.parent
            for site in call_graph.callsites[whole.parent]
        )
        return sorted(whole.users, key=lambda part: part.tuple_index, reverse=not is_condition)
    parts = sorted(whole.users, key=number_of)
    numbers = [part.tuple_index for part in parts]
    return _without_dropped(parts) if numbers == sorted(set(numbers)) else parts


def _without_dropped(parts: list[HloInstruction]) -> list[HloInstruction]:
    """Parts by number, after those that are missing among them were removed one by one."""
    listed: list[HloInstruction | None] = [None] * (parts[-1].tuple_index + 1)
    for part in parts:
        listed[part.tuple_index] = part
    place = 0
    while place < len(listed):
        if listed[place] is None:
            listed[place] = listed[-1]
            listed.pop()
        else:
            place += 1
    return [part for part in listed if part is not None]


def _after_copies(copied: HloInstruction, rank: dict[HloInstruction, int]) -> list[HloInstruction]:
    copies = sorted((user for user in copied.users if user.opcode in _COPYING), key=number_of)
    readers = [user for user in copied.users if user.opcode not in _COPYING]
    moved = [
        reader
        for copy in copies
        for reader in _readers_of_copy(copy)
        if reader in rank and reader not in readers
    ]
    listed = sorted({*readers, *moved}, key=rank.__getitem__) + copies
    for reader in dict.fromkeys(moved):
        place = listed.index(reader)
        listed[place] = listed[-1]
        listed.pop()
    return listed


def _readers_of_copy(copy: HloInstruction) -> list[HloInstruction]:
    """Who reads what was copied, in one piece or, joined by a custom call, in slices."""
    readers: list[HloInstruction] = []
    for done in copy.users:
        for user in done.users:
            if user.opcode == "custom-call" and user.custom_call_target == _JOINS_SLICES:
                readers += user.users
            elif user.opcode not in _COPYING:
                readers.append(user)
    return readers


_COPYING = frozenset({"copy-start", "async-start"})
_JOINS_SLICES = "ConcatBitcast"
