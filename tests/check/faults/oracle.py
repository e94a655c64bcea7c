"""Which faults do harm, found by brute force.

The oracle compares the plan before and after, pair by pair, and knows nothing of the checker. What
XLA wrote is right; a pair of values that newly shares bytes while both live is wrong, and so are
values that lay at one place, one after another without reading each other, and are torn apart, or
an update and the operand it replaces a part of, which XLA always plans at one place. Where a new
pair could be legal in place, the oracle does not judge.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import combinations
from typing import NamedTuple

from hlomem.dump.dump import Dump
from hlomem.hlo.ir import HloInstruction, HloModule
from hlomem.hlo.padding import unpadded_size
from hlomem.hlo.text.shape_parser import parse_shape_text
from tests.check.faults.injector import Fault

_LONGER = ("lengthen", "early start")


@dataclass
class Label:
    """What the oracle says about a fault."""

    harmful: bool | None
    """None where it cannot tell."""
    pairs: set[frozenset[int]] = field(default_factory=set)
    """The pairs of values the harm is done to; empty where it is not done to a pair."""
    by_module: bool = False
    """Whether only the module shows that these are harmed."""


class Meeting(NamedTuple):
    """Two values that share bytes while both are alive."""

    touches: bool
    identical: bool
    reads: bool
    """Whether the later reads the earlier."""


def meetings(dump: Dump) -> dict[frozenset[int], Meeting]:
    """All of them, by looking at every pair."""
    assert dump.assignment is not None
    assert dump.live_ranges is not None
    assert dump.values is not None
    lives = {(each.instruction, each.index): each for each in dump.live_ranges.ranges}
    users = {v.id: {u.instruction for u in v.uses or ()} for v in dump.values.values}
    found: dict[frozenset[int], Meeting] = {}
    for allocation in dump.assignment.allocations:
        # A token has a place, but no bytes to share.
        for one, two in combinations([each for each in allocation.values if each.size], 2):
            if one.offset >= two.offset + two.size or two.offset >= one.offset + one.size:
                continue
            a, b = lives.get((one.name, one.index or ())), lives.get((two.name, two.index or ()))
            if a is None or b is None or a.end < b.start or b.end < a.start or one.id == two.id:
                continue
            identical = (one.offset, one.size) == (two.offset, two.size)
            reads = two.name in users.get(one.id, ()) or one.name in users.get(two.id, ())
            touches = a.end == b.start or b.end == a.start
            found[frozenset({one.id, two.id})] = Meeting(touches, identical, reads)
    return found


def places(dump: Dump) -> dict[int, tuple[int, int, int]]:
    """Allocation, offset and size of every value."""
    assert dump.assignment is not None
    return {
        value.id: (each.index, value.offset, value.size)
        for each in dump.assignment.allocations
        for value in each.values
    }


def peak(dump: Dump) -> tuple[Counter[str], int] | None:
    """What the ranges say is alive at the peak, and when that is, moment by moment."""
    live = dump.live_ranges
    assert live is not None
    assert dump.values is not None
    if live.peak is None:
        return None
    at = live.peak.moment
    alive = Counter(each.instruction for each in live.ranges if each.is_live_at(at))
    sizes = {each.name: size_of_result(each.instruction) for each in dump.values.values}
    # XLA counts a value at the moment after its last, too, and the first of equal moments.
    bytes_at = [
        sum(sizes[each.instruction] for each in live.ranges if each.start <= now <= each.end + 1)
        for now in range(live.end + 1)
    ]
    return alive, bytes_at.index(max(bytes_at))


@cache
def size_of_result(instruction: str) -> int:
    """Bytes of what an instruction computes, without padding."""
    match = re.match(r"(?:ROOT )?%?[^ ]+ = (.*?) [a-z][a-z0-9-]+\(", instruction)
    assert match is not None
    return unpadded_size(parse_shape_text(match.group(1)), 8)


@lru_cache(maxsize=1)
def updates(module: HloModule) -> dict[tuple[str, tuple[int, ...]], int]:
    """The results that are an operand with a part of it replaced, and the number of that operand.

    They must share storage (`HloAliasAnalysis: ComputeInPlaceOperationAliasedValues`).
    """
    found: dict[tuple[str, tuple[int, ...]], int] = {}
    for each in (each for computation in module.computations for each in computation.instructions):
        if is_update(each):
            found[each.name, ()] = 0
        elif each.opcode == "fusion":
            for index, part in returned(each.called_computations[0].root):
                if is_update(part) and part.operands[0].opcode == "parameter":
                    found[each.name, index] = part.operands[0].parameter_number
    return found


def returned(root: HloInstruction) -> list[tuple[tuple[int, ...], HloInstruction]]:
    """What a fusion returns, each with its index."""
    if root.opcode != "tuple":
        return [((), root)]
    return [((number,), each) for number, each in enumerate(root.operands)]


def is_update(instruction: HloInstruction) -> bool:
    """Whether the result is the first operand with a part of it replaced."""
    name, is_tuple = instruction.opcode, instruction.shape.is_tuple
    return name in ("dynamic-update-slice", "scatter") and not is_tuple


def updated_pairs(dump: Dump, module: HloModule) -> dict[frozenset[int], bool]:
    """The values that are an update and its operand; whether only the module shows it."""
    assert dump.values is not None
    found: dict[frozenset[int], bool] = {}
    for result in dump.values.values:
        number = updates(module).get((result.name, result.index or ()))
        for value in dump.values.values if number is not None else ():
            if (result.name, number, ()) in {
                (use.instruction, use.operand, use.index or ()) for use in value.uses or ()
            }:
                found[frozenset({value.id, result.id})] = " fusion(" in result.instruction
    return found


def contexts(dump: Dump) -> set[int]:
    """The parts of contexts of asynchronous operations that are updated."""
    assert dump.values is not None
    updated = {
        operand
        for value in dump.values.values
        for operand in re.findall(r" custom-call-update\(%([^,)]+)", value.instruction)
    }
    return {
        value.id
        for value in dump.values.values
        if len(value.index or ()) > 1
        and (value.index or ())[0] == 2
        and (value.name in updated or " custom-call-update(" in value.instruction)
    }


def results_of_branches(dump: Dump) -> set[int]:
    """The values that conditionals choose."""
    assert dump.values is not None
    return {value.id for value in dump.values.values if " conditional(" in value.instruction}


def judge(before: Dump, fault: Fault, module: HloModule) -> Label:
    """The oracle."""
    old, new = meetings(before), meetings(fault.dump)
    updated = updated_pairs(before, module)
    pairs, unclear = set(), False
    on_other_cores, chosen = contexts(before), results_of_branches(before)
    for pair, meeting in new.items():
        if old.get(pair) == meeting:
            continue
        if pair <= on_other_cores:  # those that wait for their turn share them
            unclear = True
            continue
        if meeting.touches and meeting.reads and pair & chosen:  # its branches wrote it before
            unclear = True
            continue
        # A longer life may reach the next version of the same value.
        if meeting.touches and meeting.identical and (meeting.reads or fault.kind in _LONGER):
            unclear = True
        else:
            pairs.add(pair)
    now = places(fault.dump)
    for pair, meeting in old.items():
        one, two = (now.get(each) for each in pair)
        is_shared = pair in updated or (meeting.touches and not meeting.reads)
        if is_shared and meeting.identical and one != two:
            pairs.add(pair)
    if fault.certain is not None:
        return Label(fault.certain)
    if fault.kind in _LONGER and has_branches(before):
        return Label(harmful=None)
    if pairs and has_branches(before) and not pairs <= set(old):
        # A value of one branch may meet only what never runs beside it.
        touching = {pair for pair in pairs if pair in old or new[pair].touches}
        return Label(True if touching else None, touching, all(map(updated.get, touching)))
    if pairs:
        return Label(True, pairs, all(map(updated.get, pairs)))
    if _is_out_of_bounds(fault.dump) or peak(before) != peak(fault.dump):
        return Label(harmful=True)
    return Label(harmful=None if unclear or _was_returned(before, fault) else False)


def _was_returned(before: Dump, fault: Fault) -> bool:
    """Whether a value that moved lay where a result of the program or of branches does.

    Those share a place without touching, as outputs that are declared to alias an operand, or to
    be its concatenation, do by reading it; whether they must is not for the oracle to say.
    """
    assert before.assignment is not None
    assert before.values is not None
    old, new = places(before), places(fault.dump)
    moved = {each for each in fault.ids if old.get(each) != new.get(each)}
    texts = [each.instruction for each in before.values.values]
    declared = any(
        "output_to_operand_aliasing" in each or "ConcatBitcast" in each for each in texts
    )
    return any(
        value.id in moved and (declared or has_branches(before) or each.maybe_live_out)
        for each in before.assignment.allocations
        for value in each.values
    )


def has_branches(dump: Dump) -> bool:
    """Whether a program has a conditional."""
    assert dump.values is not None
    return any(" conditional(" in each.instruction for each in dump.values.values)


def _is_out_of_bounds(dump: Dump) -> bool:
    assert dump.assignment is not None
    return any(
        value.offset < 0 or value.offset + value.size > each.size
        for each in dump.assignment.allocations
        for value in each.values
    )
