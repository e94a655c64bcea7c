"""The order of users after the passes of the CPU compiler.

Of the users that an instruction made ready itself the schedule has kept the order, because the
scheduler walks through the same list (`hlo_memory_scheduler.cc: BFSScheduler`); of others the text
says nothing but what these rules do. `CPU_USERS` is the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.instructions.cpu import is_copied_result, is_part_of_loop
from hlomem.history.rules import CITED, OBSERVED
from hlomem.history.users.lists import UserRule, list_of, walk_in_post_order, with_several_users

if TYPE_CHECKING:
    from hlomem.history.evidence import Trace
    from hlomem.history.users.lists import Users
    from hlomem.hlo.ir import HloInstruction

_MADE_INSIDE = frozenset({"bitcast", "bitcast-convert", "fusion"})
"""Opcodes that passes put into embedded computations: fusion, and `ComparisonExpander`."""
_FUSED_OR_NOT = frozenset({"fusion", "reduce"})
_REDUCTIONS = ("wrapped_reduce", "reduce")
_WINDOWS = ("wrapped_reduce-window", "reduce-window")


def _read_in_post_order(users: Users, trace: Trace) -> None:
    """Code that no pass touches, such as an adder."""
    if with_several_users(trace):
        opcodes = {instruction.opcode for instruction in trace.computation.instructions}
        if opcodes.isdisjoint(_MADE_INSIDE):
            walk_in_post_order(users, trace)


def _list_copies_last(users: Users, trace: Trace) -> None:
    """Copies that copy insertion made come after all other users.

    But a copy of a part of a loop's parameter was first put into a new tuple, and when the tuple
    simplifier had dropped that, the last user moved to the front.
    """
    for instruction in trace.computation.instructions:
        if instruction.opcode == "copy":
            copied = instruction.operands[0]
            if len(copied.users) > 1 and copied not in users:
                list_of(users, copied).sort(key=lambda user: _is_of_copy_insertion(user, trace))


def _is_of_copy_insertion(instruction: HloInstruction, trace: Trace) -> bool:
    if instruction.opcode == "tuple":
        return is_copied_result(instruction, trace)
    # A copy that changes the layout is older.
    return instruction.opcode == "copy" and instruction.shape == instruction.operands[0].shape


def _close_gap_of_tuple(users: Users, trace: Trace) -> None:
    for copied in list(users):
        if copied.opcode != "copy":
            continue
        part = copied.operands[0]
        if part.opcode == "get-tuple-element" and is_part_of_loop(part, trace):
            users[copied] = [copied.users[-1], *copied.users[:-1]]


def _list_reductions_first(users: Users, trace: Trace) -> None:
    """A reduction that was split comes before the window that it reads.

    `TreeReductionRewriter` makes a window and a new reduction, both beginning with the same value;
    when the old reduction is removed, the new one, listed last, moves to the front.
    """
    for instruction in trace.computation.instructions:
        if instruction.opcode in _FUSED_OR_NOT and instruction.name.startswith(_REDUCTIONS):
            window, start = instruction.operands[0], instruction.operands[-1]
            if window.name.startswith(_WINDOWS) and window.operands[-1] is start:
                _move_before(list_of(users, start), instruction, window)


def _move_before(users: list[HloInstruction], moved: HloInstruction, other: HloInstruction) -> None:
    """Move a user to the place before another, unless it comes before it already."""
    place, now = users.index(other), users.index(moved)
    if place < now:
        users.insert(place, users.pop(now))


def _list_results_first(users: Users, trace: Trace) -> None:
    """A loop's new result comes before the one reader of a part that it returns as it is.

    Such a part was made by copy insertion together with a new result, and when the tuple simplifier
    drops the old result, the new one takes its place in the list: before the one that reads it, if
    there is one.
    """
    if not trace.is_loop_body or trace.is_derived:
        return
    root = trace.computation.root
    for operand in root.operands:
        if _is_loop_invariant(operand, root) and len(operand.users) == _RESULT_AND_READER:
            users[operand] = operand.users[::-1]


_RESULT_AND_READER = 2


def _is_loop_invariant(operand: HloInstruction, root: HloInstruction) -> bool:
    return (
        operand.opcode == "get-tuple-element"
        and operand.operands[0].opcode == "parameter"
        and root.operands[operand.tuple_index] is operand
    )


_NEW = "jaxlib-0.12.0.1/cpu"

CPU_USERS = (
    UserRule(
        "users in untouched code",
        CITED,
        "hlo/ir/hlo_computation.cc: MakeInstructionPostOrder",
        f"{_NEW}/partitioned_argmax",
        arrange=_read_in_post_order,
        is_embedded=True,
    ),
    UserRule(
        "copies behind other users",
        CITED,
        "service/copy_insertion.cc: RunImpl",
        f"{_NEW}/cond_simple",
        arrange=_list_copies_last,
        is_embedded=False,
    ),
    UserRule(
        "copies of a loop's parts",
        OBSERVED,
        "uses of jaxlib 0.12.0.1; hlo/ir/hlo_instruction.cc: Users::RemoveUser",
        f"{_NEW}/loop_rotate3",
        arrange=_close_gap_of_tuple,
        is_embedded=False,
    ),
    UserRule(
        "split reductions before their windows",
        CITED,
        "hlo/transforms/simplifiers/tree_reduction_rewriter.cc: HandleReduce",
        f"{_NEW}/g_cholesky_solve",
        arrange=_list_reductions_first,
        is_embedded=False,
    ),
    UserRule(
        "results of loops first",
        OBSERVED,
        "uses of jaxlib 0.4.13 to 0.12.0.1; hlo/transforms/simplifiers/tuple_simplifier.cc",
        f"{_NEW}/nested_while",
        arrange=_list_results_first,
        is_embedded=False,
    ),
)
