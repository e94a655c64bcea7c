"""The order of users after libtpu's passes (docs/tpu-rules.md).

`TPU_USERS` is the table; above it stands what its rows do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.history.names import number_of
from hlomem.history.rules import OBSERVED
from hlomem.history.users.lists import UserRule, list_of, walk_in_post_order, with_several_users

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.history.evidence import Trace
    from hlomem.history.users.lists import Users
    from hlomem.hlo.ir import HloInstruction

_COPYING = frozenset({"copy-start", "async-start"})
_JOINS_SLICES = "ConcatBitcast"


def _wholes(trace: Trace) -> Iterator[HloInstruction]:
    """Instructions whose users all take parts of them."""
    for instruction in with_several_users(trace):
        if all(user.opcode == "get-tuple-element" for user in instruction.users):
            yield instruction


def _sort_parts(users: Users, trace: Trace) -> None:
    """Parts of results are made together, in the order of their numbers."""
    for whole in _wholes(trace):
        if whole.opcode != "parameter":
            list_of(users, whole).sort(key=number_of)


def _close_gaps(users: Users, trace: Trace) -> None:
    """The last part stands in the place of one that was dropped."""
    for whole in _wholes(trace):
        parts = list_of(users, whole)
        numbers = [part.tuple_index for part in parts]
        if whole.opcode != "parameter" and numbers == sorted(set(numbers)):
            users[whole] = _without_dropped(parts)


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


def _sort_parts_of_parameter(users: Users, trace: Trace) -> None:
    """A computation takes its parameter apart from the last part to the first.

    Only the condition of a loop does not.
    """
    is_condition = any(
        site.opcode == "while" and site.called_computations[1] is trace.computation
        for site in trace.sites
    )
    for whole in _wholes(trace):
        if whole.opcode == "parameter":
            parts = list_of(users, whole)
            parts.sort(key=lambda part: part.tuple_index, reverse=not is_condition)


def _put_copies_in_place_of_readers(users: Users, trace: Trace) -> None:
    """Memory-space assignment appends copies to the users of what it copies.

    Then those that read the copy from now on are removed.
    """
    post_order = trace.module.call_graph.post_order(trace.computation)
    rank = {instruction: place for place, instruction in enumerate(post_order)}
    for copied in with_several_users(trace):
        copies = [user for user in copied.users if user.opcode in _COPYING]
        if copies:
            users[copied] = _after_copies(copied, sorted(copies, key=number_of), rank)


def _after_copies(
    copied: HloInstruction, copies: list[HloInstruction], rank: dict[HloInstruction, int]
) -> list[HloInstruction]:
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
    """The readers of what was copied, in one piece or, joined by a custom call, in slices."""
    readers: list[HloInstruction] = []
    for done in copy.users:
        for user in done.users:
            if user.opcode == "custom-call" and user.custom_call_target == _JOINS_SLICES:
                readers += user.users
            elif user.opcode not in _COPYING:
                readers.append(user)
    return readers


_NEW = "libtpu-0.0.51"

TPU_USERS = (
    UserRule(
        "users as read",
        OBSERVED,
        "uses of libtpu 0.0.51",
        f"{_NEW}/tpu-v5e/beam_search",
        arrange=walk_in_post_order,
    ),
    UserRule(
        "parts by number",
        OBSERVED,
        "uses of libtpu 0.0.51",
        f"{_NEW}/tpu-v5e/beam_search",
        arrange=_sort_parts,
    ),
    UserRule(
        "dropped parts",
        OBSERVED,
        "uses of libtpu 0.0.51; hlo/ir/hlo_instruction.cc: Users::RemoveUser",
        f"{_NEW}/tpu-v5e/beam_search",
        arrange=_close_gaps,
    ),
    UserRule(
        "parts of parameters",
        OBSERVED,
        "uses of libtpu 0.0.2 to 0.0.51",
        f"{_NEW}/tpu-v5e/nested_while",
        arrange=_sort_parts_of_parameter,
    ),
    UserRule(
        "copies in place of readers",
        OBSERVED,
        "uses of libtpu 0.0.51; hlo/ir/hlo_instruction.cc: Users::RemoveUser",
        f"{_NEW}/tpu-v5e/all_reduce_in_hbm",
        arrange=_put_copies_in_place_of_readers,
    ),
)
