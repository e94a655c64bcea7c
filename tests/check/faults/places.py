"""Faults in where values lie: moved, swapped, torn apart, lost, doubled."""

from __future__ import annotations

from msgspec.structs import replace as changed

from hlomem.dump.records import Allocation, AssignedValue
from tests import plain
from tests.check.faults.injector import Fault, Injector, Maker, on_value, rebuilt

HUGE = 2**63 - 1


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
    if found[0].color != target.color:
        return None
    is_wrong = _is_wrong_move(injector, found[1], target) or _holds_constants(target)
    return _moved(injector, found, target, certain=is_wrong)


def _is_wrong_move(injector: Injector, value: AssignedValue, target: Allocation) -> bool | None:
    """Constants and arguments stay where they are, and nothing else goes there."""
    text = injector.used(value).instruction
    if " constant(" in text and target.is_constant:
        return None
    is_argument = target.parameter is not None and not target.maybe_live_out
    is_fixed = " constant(" in text or (" parameter(" in text and not value.is_phi)
    return True if target.is_constant or is_argument or is_fixed else None


def _holds_constants(target: Allocation) -> bool | None:
    """What comes to lie on a constant does harm, even another constant at another time."""
    return True if target.is_constant and target.values else None


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
    wrong = [_is_wrong_move(injector, value, target) for value in source.values]
    certain = True if any(wrong) else _holds_constants(target)
    return Fault("", rebuilt(dump, values=values, report=None), certain, ids)


def _tear(injector: Injector) -> Fault | None:
    """A value goes to an allocation of its own."""
    found = injector.pick(shared=True)
    if found is None:
        return None
    return _to_own_allocation(injector, *found)


def _to_own_allocation(injector: Injector, source: Allocation, value: AssignedValue) -> Fault:
    rest = tuple(each for each in source.values if each is not value)
    own = plain.Allocation(
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


def _into_thread_local(injector: Injector) -> Fault | None:
    found = injector.pick()
    targets = [each for each in injector.allocations if each.is_thread_local]
    if found is None or not targets:
        return None
    return _moved(injector, found, injector.random.choice(targets), certain=True)


def _onto_thread_local(injector: Injector) -> Fault | None:
    """What is inside a reduction goes onto another such value."""
    homes = [each for each in injector.allocations if each.is_thread_local and each.size > 0]
    if len(homes) < 2:
        return None
    source, target = injector.random.sample(homes, 2)
    value = injector.random.choice(source.values)
    readers = {use.instruction for use in injector.used(value).uses or ()}
    names = {each.name for each in target.values}
    read = {use.instruction for each in target.values for use in injector.used(each).uses or ()}
    if source.color != target.color or readers & names or value.name in read:
        return None
    return _moved(injector, (source, value), target, certain=True)


def _over_argument(injector: Injector) -> Fault | None:
    """What reads an argument is written over it, which nobody donated."""
    arguments = {
        value.id: each
        for each in injector.allocations
        if each.parameter is not None and not each.maybe_live_out
        for value in each.values
    }
    pairs = [
        (found, arguments[used.id])
        for used in injector.values.values
        if used.id in arguments
        for found in injector.placed
        if found[1].name in {use.instruction for use in used.uses or ()}
        if found[1].size == arguments[used.id].size
    ]
    if not pairs:
        return None
    found, target = injector.random.choice(pairs)
    return _moved(injector, found, target, certain=True)


def _moved(
    injector: Injector,
    found: tuple[Allocation, AssignedValue],
    target: Allocation,
    *,
    certain: bool | None,
) -> Fault:
    """A value goes to the start of another allocation."""
    source, value = found
    rest = tuple(each for each in source.values if each is not value)
    new = {
        id(source): changed(source, values=rest),
        id(target): changed(target, values=(*target.values, changed(value, offset=0))),
    }
    dump = injector.with_allocations([new.get(id(each), each) for each in injector.allocations])
    return Fault("", dump, certain, frozenset({value.id}))


def _swap_across(injector: Injector) -> Fault | None:
    """Two values of one size change places, each in another allocation."""
    found = injector.pick()
    if found is None:
        return None
    home, one = found
    others = [
        (each, value)
        for each, value in injector.placed
        if each is not home and value.size == one.size and each.color == home.color
    ]
    if not others:
        return None
    away, two = injector.random.choice(others)
    new = {id(home): _exchanged(home, one, two), id(away): _exchanged(away, two, one)}
    dump = injector.with_allocations([new.get(id(each), each) for each in injector.allocations])
    certain = _is_wrong_move(injector, one, away) or _is_wrong_move(injector, two, home)
    return Fault("", dump, certain, frozenset({one.id, two.id}))


def _exchanged(allocation: Allocation, old: AssignedValue, new: AssignedValue) -> Allocation:
    values = [changed(new, offset=old.offset) if v is old else v for v in allocation.values]
    return changed(allocation, values=tuple(values))


def _shift_all(injector: Injector) -> Fault | None:
    """All values of an allocation, which grows by as much: arguments and results begin at 0."""
    found = injector.pick()
    if found is None:
        return None
    step = injector.alignment(found[0])
    values = tuple(changed(each, offset=each.offset + step) for each in found[0].values)
    new = changed(found[0], size=found[0].size + step, values=values)
    is_caller_s = found[0].parameter is not None or found[0].maybe_live_out
    return Fault("", injector.with_allocation(found[0], new), certain=is_caller_s)


def _lose_donation(injector: Injector) -> Fault | None:
    """A result leaves the argument it was given, for an allocation of its own."""
    donated = {each.parameter_number for each in injector.module.input_output_alias}
    pool = [
        (each, value)
        for each, value in injector.placed
        if each.parameter is not None and each.parameter.number in donated
        if value is each.values[-1] and len(each.values) == 2
    ]
    if not pool:
        return None
    source, value = injector.random.choice(pool)
    return _to_own_allocation(injector, source, value)._replace(certain=True, by_module=True)


PLACES: dict[str, Maker] = {
    "shift": on_value(_shift, shared=True),
    "onto another": on_value(_onto_other, shared=True),
    "swap": _swap,
    "swap across": _swap_across,
    "shift all": _shift_all,
    "misalign": on_value(_misalign, certain=True),
    "halve": on_value(lambda _, __, v: changed(v, size=v.size // 2), certain=True),
    "zero": on_value(lambda _, __, v: changed(v, size=0), certain=True),
    "double size": on_value(lambda _, __, v: changed(v, size=v.size * 2), certain=True),
    "negative": on_value(lambda _, __, v: changed(v, offset=-v.size), certain=True),
    "negative size": on_value(lambda _, __, v: changed(v, size=-v.size), certain=True),
    "behind": on_value(lambda _, a, v: changed(v, offset=a.size), certain=True),
    "wrap": on_value(lambda _, __, v: changed(v, offset=HUGE), certain=True),
    "other allocation": _move_to_other_allocation,
    "into thread-local": _into_thread_local,
    "onto thread-local": _onto_thread_local,
    "over argument": _over_argument,
    "lose donation": _lose_donation,
    "merge allocations": _merge_allocations,
    "tear": _tear,
    "drop": _drop,
    "double": _double,
}
