"""The order of users after the passes of the GPU compiler.

Fusion lists users about as a walk through the operands meets them (`priority_fusion.cc` goes by
estimated cost, so which of two it took first the text does not tell); where a pass makes several of
a kind, their numbers or places do. Every kind of users is sorted within the places it has in the
text, before some kinds go to the front or the end. `GPU_USERS` is the table.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from hlomem.history.instructions.gpu import is_tracked, name_number, took_copy_in
from hlomem.history.names import CLONE, split_number
from hlomem.history.rules import CITED, FITTED, OBSERVED
from hlomem.history.users.lists import UserRule, list_of, walk_in_post_order, with_several_users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.history.evidence import Trace
    from hlomem.history.users.lists import Users
    from hlomem.hlo.ir import HloInstruction

    Key: TypeAlias = Callable[[HloInstruction], int]

_PART = "get-tuple-element"
_WRAPPED = "wrapped_"
_NUMBERED_FUSIONS = (_WRAPPED, "gemm_fusion_")
_EXPANDED = ("xor", "compare", "select")

# Inside one operation.


def _sort_expanded(users: Users, _trace: Trace) -> None:
    """Of each side of a comparison `ComparisonExpander` makes these, in this order."""
    for listed in users.values():
        if {user.opcode for user in listed} == set(_EXPANDED):
            listed.sort(key=lambda user: _EXPANDED.index(user.opcode))


def _reverse_constants(users: Users, _trace: Trace) -> None:
    """Both sides of a comparison then share the constants of the right."""
    for instruction, listed in users.items():
        if instruction.opcode == "constant" and all(map(_reads_bitcast, listed)):
            listed.reverse()


def _reads_bitcast(user: HloInstruction) -> bool:
    return any(operand.opcode == "bitcast" for operand in user.operands)


# In the program's flow: kinds of users within their places.


def _lists(users: Users, trace: Trace) -> Iterator[tuple[HloInstruction, list[HloInstruction]]]:
    """Instructions with several users, and those."""
    for instruction in with_several_users(trace):
        yield instruction, list_of(users, instruction)


def _sort_within_places(
    listed: list[HloInstruction], belongs: Callable[[HloInstruction], bool], key: Key
) -> None:
    """Sort the users of a kind, all others left where they are."""
    places = [place for place, user in enumerate(listed) if belongs(user)]
    if len(places) > 1:
        members = sorted([listed[place] for place in places], key=key)
        for place, user in zip(places, members, strict=True):
            listed[place] = user


def _is_numbered(user: HloInstruction, base: str = "") -> bool:
    is_named = user.opcode == "fusion" and user.name.startswith(_NUMBERED_FUSIONS)
    is_counted = is_named or user.opcode == "custom-call"
    return is_counted and (not base or split_number(user.name)[0] == base)


def _sort_numbered(users: Users, trace: Trace) -> None:
    for _, listed in _lists(users, trace):
        for base in {split_number(user.name)[0] for user in listed if _is_numbered(user)}:
            _sort_within_places(listed, partial(_is_numbered, base=base), name_number)


def _sort_fusions(users: Users, trace: Trace) -> None:
    post_order = trace.module.call_graph.post_order(trace.computation)
    place_of = {instruction: place for place, instruction in enumerate(post_order)}
    for _, listed in _lists(users, trace):
        _sort_within_places(listed, _is_other_fusion, place_of.__getitem__)


def _is_other_fusion(user: HloInstruction) -> bool:
    return user.opcode == "fusion" and not _is_numbered(user)


def _reverse_bitcasts(users: Users, trace: Trace) -> None:
    for _, listed in _lists(users, trace):
        from_last = {user: place for place, user in enumerate(reversed(listed))}
        _sort_within_places(listed, _is_tracked_bitcast, from_last.__getitem__)


def _is_tracked_bitcast(user: HloInstruction) -> bool:
    return user.opcode == "bitcast" and is_tracked(user)


def _is_part(user: HloInstruction) -> bool:
    return user.opcode == _PART


def _sort_parts(users: Users, trace: Trace) -> None:
    for whole, listed in _lists(users, trace):
        _sort_within_places(listed, _is_part, _key_of_parts(whole, trace))


def _key_of_parts(whole: HloInstruction, trace: Trace) -> Key:
    if whole.opcode in ("custom-call", "while"):
        return name_number
    is_parameter_of_loop = whole.opcode == "parameter" and trace.is_called_by("while")
    if is_parameter_of_loop or took_copy_in(whole, trace):
        return lambda part: -part.tuple_index
    return lambda part: part.tuple_index


def _close_gap_of_counter(users: Users, trace: Trace) -> None:
    """The last part took the place of the program's own counter of a loop, if that was dropped."""
    for whole, listed in _lists(users, trace):
        if whole.opcode != "while":
            continue
        parts = [user for user in listed if _is_part(user)]
        is_own = bool(parts) and not parts[0].name.startswith(_PART)
        if is_own and min(part.tuple_index for part in parts) > 0:
            place_of = {part: place for place, part in enumerate([parts[-1], *parts[:-1]])}
            _sort_within_places(listed, _is_part, place_of.__getitem__)


# In the program's flow: kinds that go to the front or the end.


def _list_wrapped_last(users: Users, trace: Trace) -> None:
    for _, listed in _lists(users, trace):
        listed.sort(key=lambda user: user.opcode == "fusion" and user.name.startswith(_WRAPPED))


def _list_bitcasts_first(users: Users, trace: Trace) -> None:
    for _, listed in _lists(users, trace):
        listed.sort(key=lambda user: not _is_tracked_bitcast(user))


def _list_results_first(users: Users, trace: Trace) -> None:
    """Copy insertion put parts into a new result before anything else used them again."""
    for instruction, listed in _lists(users, trace):
        if _is_handed_on(instruction, trace):
            listed.sort(key=lambda user: not _is_new_result(user))


def _is_new_result(user: HloInstruction) -> bool:
    return user.opcode == "tuple" and user.is_root and not is_tracked(user)


def _is_handed_on(instruction: HloInstruction, trace: Trace) -> bool:
    if instruction.opcode == "parameter":
        return True
    return (
        trace.is_called_by("while")
        and trace.name.count(CLONE) <= 1
        and instruction.opcode == _PART
        and instruction.operands[0].opcode == "parameter"
        and len(instruction.users) == _RESULT_AND_READER
    )


_RESULT_AND_READER = 2


_H200 = "jaxlib-0.11.2/gpu-h200"

GPU_USERS = (
    UserRule(
        "users in untouched code",
        CITED,
        "hlo/ir/hlo_computation.cc: MakeInstructionPostOrder",
        f"{_H200}/top_k_steps",
        arrange=walk_in_post_order,
        is_embedded=True,
    ),
    UserRule(
        "users in expanded comparisons",
        CITED,
        "hlo/transforms/expanders/comparison_expander.cc: ExpandInstruction",
        f"{_H200}/top_k_steps",
        arrange=_sort_expanded,
        is_embedded=True,
    ),
    UserRule(
        "constants of expanded comparisons",
        OBSERVED,
        "uses of jaxlib 0.11.2",
        f"{_H200}/top_k_steps",
        arrange=_reverse_constants,
        is_embedded=True,
    ),
    UserRule(
        "numbered users",
        OBSERVED,
        "uses of jaxlib 0.11.2",
        f"{_H200}/split_bf16",
        arrange=_sort_numbered,
        is_embedded=False,
    ),
    UserRule(
        "fusions as met",
        FITTED,
        "uses of jaxlib 0.11.2",
        f"{_H200}/tf_scan_layers",
        arrange=_sort_fusions,
        is_embedded=False,
    ),
    UserRule(
        "bitcasts from the last",
        FITTED,
        "uses of jaxlib 0.11.2",
        f"{_H200}/switch_branches",
        arrange=_reverse_bitcasts,
        is_embedded=False,
    ),
    UserRule(
        "parts by number",
        OBSERVED,
        "uses of jaxlib 0.11.2",
        f"{_H200}/cond_simple",
        arrange=_sort_parts,
        is_embedded=False,
    ),
    UserRule(
        "dropped counters",
        CITED,
        "hlo/ir/hlo_instruction.cc: Users::RemoveUser",
        f"{_H200}/lstm_scan",
        arrange=_close_gap_of_counter,
        is_embedded=False,
    ),
    UserRule(
        "wrapped instructions last",
        CITED,
        "service/gpu/gpu_compiler.cc: RunPreSchedulingPasses",
        "jaxlib-0.12.0.1/gpu-h200/sorts_in_loops",
        arrange=_list_wrapped_last,
        is_embedded=False,
    ),
    UserRule(
        "bitcasts first",
        FITTED,
        "uses of jaxlib 0.11.2",
        f"{_H200}/sm_permute_ring",
        arrange=_list_bitcasts_first,
        is_embedded=False,
    ),
    UserRule(
        "new results first",
        OBSERVED,
        "uses of jaxlib 0.11.2; hlo/transforms/simplifiers/tuple_simplifier.cc",
        f"{_H200}/nested_while",
        arrange=_list_results_first,
        is_embedded=False,
    ),
)
