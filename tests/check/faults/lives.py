"""Faults in when values live: live ranges and the sequence."""

from __future__ import annotations

from msgspec.structs import replace as changed

from hlomem.dump.records import Allocation, AssignedValue
from tests.check.faults.injector import Fault, Injector, Maker, rebuilt


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
    """What is defined, and what a computation is called with, is there from the start."""
    found = injector.pick()
    life = injector.range_of(found[1]) if found else None
    if found is None or life is None or life.end <= life.start + 1:
        return None
    allocation, value = found
    dump = injector.with_range(life, changed(life, start=life.start + 2))
    moment = injector.live.sequence.index(value.name)
    by_module = life.start + 2 <= moment and allocation.parameter is None
    return Fault("", dump, certain=True, ids=frozenset({value.id}), by_module=by_module)


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


def _early_start(injector: Injector) -> Fault | None:
    found = injector.pick(shared=True)
    life = injector.range_of(found[1]) if found else None
    if found is None or life is None or life.start == 0:
        return None
    start = injector.random.randrange(life.start)
    dump = injector.with_range(life, changed(life, start=start))
    return Fault("", dump, ids=frozenset({found[1].id}))


def _past_the_end(injector: Injector) -> Fault | None:
    found = injector.pick()
    life = injector.range_of(found[1]) if found else None
    if life is None:
        return None
    past = changed(life, end=injector.live.end + injector.random.choice([1, 10**9]))
    return Fault("", injector.with_range(life, past), certain=True)


def _swap_ranges(injector: Injector) -> Fault | None:
    """The lives of two values are exchanged; one then begins too late."""
    plain = [
        each
        for each in injector.live.ranges
        if each.instruction in injector.live.sequence
        and injector.live.sequence[each.start] == each.instruction
    ]
    if len(plain) < 2:
        return None
    one, two = injector.random.sample(plain, 2)
    if one.start == two.start:
        return None
    new = {id(one): (two.start, two.end), id(two): (one.start, one.end)}
    ranges = []
    for each in injector.live.ranges:
        start, end = new.get(id(each), (each.start, each.end))
        ranges.append(changed(each, start=start, end=end))
    return Fault("", injector.with_live(ranges=tuple(ranges)), certain=True)


def _drop_step(injector: Injector) -> Fault | None:
    place = injector.random.randrange(len(injector.live.sequence))
    sequence = list(injector.live.sequence)
    del sequence[place]
    dump = injector.with_live(sequence=tuple(sequence), end=len(sequence))
    return Fault("", dump, certain=True)


def _double_step(injector: Injector) -> Fault | None:
    name = injector.random.choice(injector.live.sequence)
    sequence = (*injector.live.sequence, name)
    return Fault("", injector.with_live(sequence=sequence, end=len(sequence)), certain=True)


def _swap_neighbours(injector: Injector) -> Fault | None:
    """Two steps change places; what is then computed earlier is not alive yet."""
    sequence = list(injector.live.sequence)
    place = injector.random.randrange(len(sequence) - 1)
    sequence[place : place + 2] = sequence[place + 1], sequence[place]
    starts = [each.start for each in injector.live.ranges if each.instruction == sequence[place]]
    if place + 1 not in starts:
        return None
    return Fault("", injector.with_live(sequence=tuple(sequence)), certain=True)


def _wrong_length(injector: Injector) -> Fault | None:
    return Fault("", injector.with_live(end=injector.live.end + 1), certain=True)


LIVES: dict[str, Maker] = {
    "shorten": _shorten,
    "late start": _late_start,
    "early start": _early_start,
    "lengthen": _lengthen,
    "past the end": _past_the_end,
    "swap ranges": _swap_ranges,
    "reorder": _reorder,
    "swap neighbours": _swap_neighbours,
    "drop step": _drop_step,
    "double step": _double_step,
    "wrong length": _wrong_length,
    "drop range": _drop_range,
}
