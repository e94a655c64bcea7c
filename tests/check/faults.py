"""Faults put into real plans, and an oracle that says by brute force which of them do harm.

The oracle compares the plan before and after, pair by pair, and knows nothing of the checker. What
XLA wrote is right; a pair of values that newly shares bytes while both live is wrong, and so are
values that lay at one place, one after another without reading each other, and are torn apart.
Where a new pair could be legal in place, the oracle does not judge.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

from msgspec.structs import replace as changed

from hlomem.backends import Backend
from hlomem.dump.dump import Dump
from hlomem.dump.parts import Contents
from hlomem.dump.records import (
    Allocation,
    AssignedValue,
    Assignment,
    LiveRange,
    LiveRanges,
    SpaceReport,
    Values,
)

HUGE = 2**63 - 1


def rebuilt(dump: Dump, **parts: object) -> Dump:
    """`dump` with other records in place of its own, all in one file."""
    contents = Contents(dump.assignment, dump.values, dump.live_ranges, dump.report)
    part = dump.parts[0]._replace(contents=contents._replace(**parts))  # type: ignore[arg-type]
    return replace(dump, parts=(part,))


@dataclass
class Label:
    """What the oracle says about a fault."""

    harmful: bool | None
    """None where it cannot tell."""
    pairs: set[frozenset[int]] = field(default_factory=set)
    """The pairs of values the harm is done to; empty where it is not done to a pair."""


class Fault(NamedTuple):
    """A plan with one thing changed."""

    kind: str
    dump: Dump
    certain: bool | None = None
    """Whether it does harm, where that is clear from how it was made."""
    ids: frozenset[int] = frozenset()


class Injector:
    """Makes faults of every kind in one plan."""

    def __init__(self, dump: Dump, backend: Backend, seed: int) -> None:
        assert dump.assignment is not None
        assert dump.live_ranges is not None
        assert dump.values is not None
        self.dump = dump
        self.backend = backend
        self.random = random.Random(seed)  # noqa: S311 - the same faults every time
        self.allocations = dump.assignment.allocations
        self.live: LiveRanges = dump.live_ranges
        self.values: Values = dump.values
        self.placed = [
            (each, value)
            for each in self.allocations
            for value in each.values
            if not each.is_thread_local and value.size > 0
        ]
        self.shared = [
            pair for pair in self.placed if len(pair[0].values) > 1 and not pair[0].is_constant
        ]

    def faults(self, rounds: int) -> Iterator[Fault]:
        """`rounds` faults of each kind the plan can have."""
        for kind, make in KINDS.items():
            for _ in range(rounds):
                made = make(self)
                if made is not None:
                    yield made._replace(kind=kind)

    def pick(self, *, shared: bool = False) -> tuple[Allocation, AssignedValue] | None:
        pool = self.shared if shared else self.placed
        return self.random.choice(pool) if pool else None

    def alignment(self, allocation: Allocation) -> int:
        return self.backend.alignment(allocation.color) or 1

    def with_allocations(self, allocations: list[Allocation]) -> Dump:
        return rebuilt(self.dump, assignment=Assignment(allocations=tuple(allocations)))

    def with_value(self, allocation: Allocation, old: AssignedValue, new: AssignedValue) -> Dump:
        values = tuple(new if each is old else each for each in allocation.values)
        return self.with_allocation(allocation, changed(allocation, values=values))

    def with_allocation(self, old: Allocation, new: Allocation) -> Dump:
        """With one allocation changed; a total that was right stays right."""
        dump = self.with_allocations([new if each is old else each for each in self.allocations])
        if old.size == new.size:
            return dump
        grown = new.size - old.size
        values = changed(self.values, total_bytes=self.values.total_bytes + grown)
        return rebuilt(dump, values=values, report=None)

    def with_range(self, old: LiveRange, new: LiveRange) -> Dump:
        ranges = tuple(new if each is old else each for each in self.live.ranges)
        return rebuilt(self.dump, live_ranges=changed(self.live, ranges=ranges))

    def range_of(self, value: AssignedValue) -> LiveRange | None:
        key = (value.name, value.index or ())
        return next(
            (each for each in self.live.ranges if (each.instruction, each.index) == key), None
        )


Maker = Callable[[Injector], Fault | None]


def _on_value(
    change: Callable[[Injector, Allocation, AssignedValue], AssignedValue | None],
    *,
    shared: bool = False,
    certain: bool | None = None,
) -> Maker:
    def make(injector: Injector) -> Fault | None:
        found = injector.pick(shared=shared)
        if found is None:
            return None
        allocation, value = found
        new = change(injector, allocation, value)
        if new is None or new == value:
            return None
        dump = injector.with_value(allocation, value, new)
        return Fault("", dump, certain, frozenset({value.id}))

    return make


def _shift(injector: Injector, allocation: Allocation, value: AssignedValue) -> AssignedValue:
    step = injector.alignment(allocation) * injector.random.choice([-4, -1, 1, 1, 2, 3, 16])
    return changed(value, offset=value.offset + step)


def _onto_other(injector: Injector, allocation: Allocation, value: AssignedValue) -> AssignedValue:
    return changed(value, offset=injector.random.choice(allocation.values).offset)


def _misalign(
    injector: Injector, allocation: Allocation, value: AssignedValue
) -> AssignedValue | None:
    if injector.alignment(allocation) == 1:
        return None
    return changed(value, offset=value.offset + injector.random.choice([1, 2, 3]))


def _swap(injector: Injector) -> Fault | None:
    found = injector.pick(shared=True)
    if found is None:
        return None
    allocation, one = found
    two = injector.random.choice(allocation.values)
    if one.offset == two.offset:
        return None
    moved = {id(one): two.offset, id(two): one.offset}
    values = tuple(changed(v, offset=moved.get(id(v), v.offset)) for v in allocation.values)
    dump = injector.with_allocation(allocation, changed(allocation, values=values))
    return Fault("", dump, ids=frozenset({one.id, two.id}))


def _move_to_other_allocation(injector: Injector) -> Fault | None:
    found = injector.pick()
    target = injector.random.choice(injector.allocations)
    if found is None or found[0] is target or target.is_thread_local:
        return None
    source, value = found
    if source.color != target.color:
        return None
    rest = tuple(each for each in source.values if each is not value)
    new = {
        id(source): changed(source, values=rest),
        id(target): changed(target, values=(*target.values, changed(value, offset=0))),
    }
    dump = injector.with_allocations([new.get(id(each), each) for each in injector.allocations])
    return Fault("", dump, _is_wrong_move(source, target), frozenset({value.id}))


def _is_wrong_move(source: Allocation, target: Allocation) -> bool | None:
    """Constants and arguments stay where they are, and nothing else goes there."""
    is_argument = target.parameter is not None and not target.maybe_live_out
    is_fixed = source.is_constant or source.parameter is not None
    return True if target.is_constant or is_argument or is_fixed else None


def _merge_allocations(injector: Injector) -> Fault | None:
    """All values of the last allocation go into another, at the offsets they had."""
    source = injector.allocations[-1]
    target = injector.random.choice(injector.allocations[:-1] or (source,))
    plain = not (target.is_thread_local or source.is_thread_local) and source.values
    if source is target or not plain or source.color != target.color:
        return None
    joined = changed(
        target, size=max(source.size, target.size), values=(*target.values, *source.values)
    )
    allocations = [joined if each is target else each for each in injector.allocations[:-1]]
    dump = injector.with_allocations(allocations)
    total = sum(each.size for each in allocations)
    values = changed(injector.values, total_bytes=total)
    ids = frozenset(value.id for value in source.values)
    certain = _is_wrong_move(source, target)
    return Fault("", rebuilt(dump, values=values, report=None), certain, ids)


def _tear(injector: Injector) -> Fault | None:
    """A value goes to an allocation of its own."""
    found = injector.pick(shared=True)
    if found is None:
        return None
    source, value = found
    rest = tuple(each for each in source.values if each is not value)
    own = Allocation(
        index=len(injector.allocations),
        size=value.size,
        color=source.color,
        values=(changed(value, offset=0),),
        maybe_live_out=source.maybe_live_out,
    )
    kept = [changed(each, values=rest) if each is source else each for each in injector.allocations]
    dump = injector.with_allocations([*kept, own])
    total = injector.values.total_bytes + value.size
    values = changed(injector.values, total_bytes=total)
    return Fault("", rebuilt(dump, values=values, report=None), ids=frozenset({value.id}))


def _drop(injector: Injector) -> Fault | None:
    found = injector.pick()
    if found is None:
        return None
    allocation, value = found
    rest = tuple(each for each in allocation.values if each is not value)
    dump = injector.with_allocation(allocation, changed(allocation, values=rest))
    return Fault("", dump, certain=True, ids=frozenset({value.id}))


def _double(injector: Injector) -> Fault | None:
    found = injector.pick()
    target = injector.random.choice(injector.allocations)
    if found is None or found[0] is target:
        return None
    joined = changed(target, values=(*target.values, found[1]))
    dump = injector.with_allocation(target, joined)
    return Fault("", dump, certain=True, ids=frozenset({found[1].id}))


def _recolor_allocation(injector: Injector) -> Fault | None:
    found = injector.pick()
    if found is None:
        return None
    color = found[0].color + injector.random.choice([1, 5])
    dump = injector.with_allocation(found[0], changed(found[0], color=color))
    return Fault("", dump, certain=True)


def _shrink_allocation(injector: Injector) -> Fault | None:
    found = injector.pick()
    if found is None or found[0].size == 0:
        return None
    new = changed(found[0], size=found[0].size - injector.random.choice([1, found[0].size]))
    return Fault("", injector.with_allocation(found[0], new), certain=True)


def _grow_allocation(injector: Injector) -> Fault | None:
    found = injector.pick()
    if found is None:
        return None
    new = changed(found[0], size=found[0].size * 2)
    return Fault("", injector.with_allocation(found[0], new), certain=False)


def _renumber(injector: Injector) -> Fault | None:
    allocation = injector.random.choice(injector.allocations)
    new = changed(allocation, index=allocation.index + injector.random.choice([-1, 1, 7]))
    return Fault("", injector.with_allocation(allocation, new), certain=True)


def _shorten(injector: Injector) -> Fault | None:
    """A range ends one step before something that reads its value, or is empty."""
    found = injector.pick()
    life = injector.range_of(found[1]) if found else None
    if found is None or life is None or life.end == life.start:
        return None
    used = next(each for each in injector.values.values if each.id == found[1].id)
    times = {name: moment for moment, name in enumerate(injector.live.sequence)}
    defining = {each.name for each in injector.values.values}
    plain = [
        times[use.instruction]
        for use in used.uses or ()
        if use.instruction in times and life.start < times[use.instruction] <= life.end
        if use.instruction in defining  # others forward a value, or call what reads it
    ]
    if not plain or _has_company(found):
        return None
    dump = injector.with_range(life, changed(life, end=max(plain) - 1))
    return Fault("", dump, certain=True, ids=frozenset({found[1].id}))


def _has_company(found: tuple[Allocation, AssignedValue]) -> bool:
    """Whether a value of the same place may cover the end of another's life."""
    allocation, value = found
    same = [each for each in allocation.values if each.offset == value.offset]
    return len(same) > 1


def _late_start(injector: Injector) -> Fault | None:
    found = injector.pick()
    life = injector.range_of(found[1]) if found else None
    if found is None or life is None or life.end <= life.start + 1:
        return None
    dump = injector.with_range(life, changed(life, start=life.start + 2))
    sequence = injector.live.sequence
    is_late = found[1].name in sequence and life.start + 2 > sequence.index(found[1].name)
    return Fault("", dump, True if is_late else None, frozenset({found[1].id}))


def _lengthen(injector: Injector) -> Fault | None:
    found = injector.pick(shared=True)
    life = injector.range_of(found[1]) if found else None
    if found is None or life is None or life.end >= injector.live.end:
        return None
    end = injector.random.randrange(life.end + 1, injector.live.end + 1)
    return Fault(
        "", injector.with_range(life, changed(life, end=end)), ids=frozenset({found[1].id})
    )


def _reorder(injector: Injector) -> Fault | None:
    """An instruction changes places with one that reads its value."""
    found = injector.pick()
    if found is None:
        return None
    used = next(each for each in injector.values.values if each.id == found[1].id)
    sequence = list(injector.live.sequence)
    users = [use.instruction for use in used.uses or () if use.instruction in sequence]
    if used.name not in sequence or not users:
        return None
    one, two = sequence.index(used.name), sequence.index(injector.random.choice(users))
    sequence[one], sequence[two] = sequence[two], sequence[one]
    live = changed(injector.live, sequence=tuple(sequence))
    return Fault("", rebuilt(injector.dump, live_ranges=live), certain=True)


def _drop_range(injector: Injector) -> Fault | None:
    if not injector.live.ranges:
        return None
    dropped = injector.random.choice(injector.live.ranges)
    ranges = tuple(each for each in injector.live.ranges if each is not dropped)
    live = changed(injector.live, ranges=ranges)
    return Fault("", rebuilt(injector.dump, live_ranges=live), certain=True)


def _wrong_total(injector: Injector) -> Fault | None:
    total = injector.values.total_bytes + injector.random.choice([-1, 1, 64, HUGE])
    values = changed(injector.values, total_bytes=total)
    return Fault("", rebuilt(injector.dump, values=values), certain=True)


def _wrong_report(injector: Injector) -> Fault | None:
    report = injector.dump.report
    if report is None:
        return None
    if isinstance(report, SpaceReport):
        space = report.spaces[0]
        wrong = changed(space, total_bytes=space.total_bytes + 1)
        new = changed(report, spaces=(wrong, *report.spaces[1:]))
        return Fault("", rebuilt(injector.dump, report=new), certain=True)
    other = changed(report, total_bytes=report.total_bytes + 1)
    return Fault("", rebuilt(injector.dump, report=other), certain=True)


def _wrong_peak(injector: Injector) -> Fault | None:
    peak = injector.live.peak
    if peak is None or not peak.buffers:
        return None
    dropped = injector.random.choice(peak.buffers)
    buffers = tuple(each for each in peak.buffers if each is not dropped)
    live = changed(injector.live, peak=changed(peak, buffers=buffers))
    return Fault("", rebuilt(injector.dump, live_ranges=live), certain=True)


def _lose_output(injector: Injector) -> Fault | None:
    outputs = [each for each in injector.allocations if each.output_shape is not None]
    new = changed(outputs[0], maybe_live_out=False)
    return Fault("", injector.with_allocation(outputs[0], new), certain=True)


KINDS: dict[str, Maker] = {
    "shift": _on_value(_shift, shared=True),
    "onto another": _on_value(_onto_other, shared=True),
    "swap": _swap,
    "misalign": _on_value(_misalign, certain=True),
    "halve": _on_value(lambda _, __, v: changed(v, size=v.size // 2), certain=True),
    "zero": _on_value(lambda _, __, v: changed(v, size=0), certain=True),
    "double size": _on_value(lambda _, __, v: changed(v, size=v.size * 2), certain=True),
    "negative": _on_value(lambda _, __, v: changed(v, offset=-v.size), certain=True),
    "negative size": _on_value(lambda _, __, v: changed(v, size=-v.size), certain=True),
    "behind": _on_value(lambda _, a, v: changed(v, offset=a.size), certain=True),
    "wrap": _on_value(lambda _, __, v: changed(v, offset=HUGE), certain=True),
    "recolor": _on_value(lambda _, __, v: changed(v, color=(v.color or 0) + 1), certain=True),
    "unknown id": _on_value(lambda _, __, v: changed(v, id=v.id + 10**6), certain=True),
    "other allocation": _move_to_other_allocation,
    "merge allocations": _merge_allocations,
    "tear": _tear,
    "drop": _drop,
    "double": _double,
    "recolor allocation": _recolor_allocation,
    "shrink allocation": _shrink_allocation,
    "grow allocation": _grow_allocation,
    "renumber": _renumber,
    "shorten": _shorten,
    "late start": _late_start,
    "lengthen": _lengthen,
    "reorder": _reorder,
    "drop range": _drop_range,
    "wrong total": _wrong_total,
    "wrong report": _wrong_report,
    "wrong peak": _wrong_peak,
    "lose output": _lose_output,
}


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
    found = {}
    for allocation in dump.assignment.allocations:
        for one, two in combinations(allocation.values, 2):
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


def alive_at_peak(dump: Dump) -> Counter[str] | None:
    """What the ranges say is alive at the peak."""
    assert dump.live_ranges is not None
    peak = dump.live_ranges.peak
    if peak is None:
        return None
    return Counter(r.instruction for r in dump.live_ranges.ranges if r.is_live_at(peak.moment))


def judge(before: Dump, fault: Fault) -> Label:
    """The oracle."""
    old, new = meetings(before), meetings(fault.dump)
    pairs, unclear = set(), False
    for pair, meeting in new.items():
        if old.get(pair) == meeting:
            continue
        # A longer life may reach the next version of the same value.
        if meeting.touches and meeting.identical and (meeting.reads or fault.kind == "lengthen"):
            unclear = True
        else:
            pairs.add(pair)
    now = places(fault.dump)
    for pair, meeting in old.items():
        one, two = (now.get(each) for each in pair)
        if meeting.touches and meeting.identical and not meeting.reads and one != two:
            pairs.add(pair)
    if fault.certain is not None:
        return Label(fault.certain)
    if fault.kind == "lengthen" and has_branches(before):
        return Label(harmful=None)
    if pairs and has_branches(before) and not pairs <= set(old):
        # A value of one branch may meet only what never runs beside it.
        touching = {pair for pair in pairs if pair in old or new[pair].touches}
        return Label(harmful=True if touching else None, pairs=touching)
    if pairs:
        return Label(harmful=True, pairs=pairs)
    if _is_out_of_bounds(fault.dump) or alive_at_peak(before) != alive_at_peak(fault.dump):
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
