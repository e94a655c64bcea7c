"""Faults in headers, names, lists and sums: what a dump says about its values and allocations."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec.structs import replace as changed

from hlomem.dump.records import (
    AllocationReport,
    AssignedValue,
    SpaceReport,
    UsageTable,
    Use,
)
from tests import plain
from tests.check.faults.injector import Fault, Injector, Maker, on_value, rebuilt
from tests.check.faults.places import HUGE


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


def _same_number(injector: Injector) -> Fault | None:
    one, two = (injector.random.choice(injector.allocations) for _ in range(2))
    if one is two:
        return None
    dump = injector.with_allocation(one, changed(one, index=two.index))
    return Fault("", dump, certain=True)


def _argument_to_temporary(injector: Injector) -> Fault | None:
    pool = [each for each in injector.allocations if each.parameter is not None]
    if not pool:
        return None
    old = injector.random.choice(pool)
    return Fault("", injector.with_allocation(old, changed(old, parameter=None)), certain=True)


def _argument_renumbered(injector: Injector) -> Fault | None:
    pool = [each for each in injector.allocations if each.parameter is not None]
    if not pool:
        return None
    old = injector.random.choice(pool)
    assert old.parameter is not None
    number = old.parameter.number + injector.random.choice([1, 5])
    new = changed(old, parameter=changed(old.parameter, number=number))
    return Fault("", injector.with_allocation(old, new), certain=True)


def _not_live_out(injector: Injector) -> Fault | None:
    pool = [each for each in injector.allocations if each.maybe_live_out]
    old = injector.random.choice(pool)
    new = changed(old, maybe_live_out=False)
    return Fault("", injector.with_allocation(old, new), certain=True)


def _live_out(injector: Injector) -> Fault | None:
    """A temporary that is said to be returned: nobody else gets its memory for it."""
    found = injector.pick()
    if found is None or found[0].maybe_live_out:
        return None
    new = changed(found[0], maybe_live_out=True)
    return Fault("", injector.with_allocation(found[0], new), certain=False)


def _other_output_shape(injector: Injector) -> Fault | None:
    """Of a tuple; what is returned alone may be a bitcast of what the allocation holds."""
    old = next(each for each in injector.allocations if each.output_shape is not None)
    new = changed(old, output_shape="f32[7,7,7]")
    is_tuple = old.output_shape is not None and old.output_shape.startswith("(")
    return Fault("", injector.with_allocation(old, new), certain=True, by_module=not is_tuple)


def _drop_allocation(injector: Injector) -> Fault | None:
    last = injector.allocations[-1]
    if not last.values:
        return None
    dump = injector.with_allocations(list(injector.allocations[:-1]))
    total = injector.values.total_bytes - last.size
    values = changed(injector.values, total_bytes=total)
    return Fault("", rebuilt(dump, values=values, report=None), certain=True)


def _empty_allocation(injector: Injector) -> Fault | None:
    new = plain.Allocation(index=len(injector.allocations), size=0)
    return Fault("", injector.with_allocations([*injector.allocations, new]), certain=False)


def _swap_ids(injector: Injector) -> Fault | None:
    one, two = injector.pick(), injector.pick()
    if one is None or two is None or one[1] is two[1]:
        return None
    ids = {one[1].id: two[1].id, two[1].id: one[1].id}
    allocations = [
        changed(a, values=tuple(changed(v, id=ids.get(v.id, v.id)) for v in a.values))
        for a in injector.allocations
    ]
    return Fault("", injector.with_allocations(allocations), certain=True, ids=frozenset(ids))


def _reshape(value: AssignedValue) -> AssignedValue | None:
    kinds = {"f32[": "s32[", "s32[": "f32[", "bf16[": "f16[", "pred[": "s8["}
    for old, new in kinds.items():
        if value.shape.startswith(old):
            return changed(value, shape=value.shape.replace(old, new, 1))
    return None


def _forget(injector: Injector) -> Fault | None:
    """A value is in none of the lists; what reads it still does."""
    found = injector.pick()
    used = injector.used(found[1]) if found else None
    if found is None or used is None or not used.uses:
        return None
    allocation, value = found
    rest = tuple(each for each in allocation.values if each is not value)
    dump = injector.with_allocation(allocation, changed(allocation, values=rest))
    values = tuple(each for each in injector.values.values if each is not used)
    ranges = tuple(each for each in injector.live.ranges if each is not injector.range_of(value))
    live = changed(injector.live, ranges=ranges, peak=None)
    lists = changed(injector.values, values=values)
    texts = [each.instruction for each in values if each.name != used.name]
    is_named = any(f"%{used.name}" in re.split(r"[ ,()]+", text) for text in texts)
    is_alone = value.index is None
    return Fault(
        "",
        rebuilt(dump, values=lists, live_ranges=live, report=None),
        certain=True,
        by_module=not (is_named and is_alone) or value.name not in injector.live.sequence,
    )


def _drop_use(injector: Injector) -> Fault | None:
    return _change_use(injector, lambda _: ())


def _other_operand(injector: Injector) -> Fault | None:
    return _change_use(injector, lambda use: (changed(use, operand=use.operand + 1),))


def _change_use(injector: Injector, change: Callable[[Use], tuple[Use, ...]]) -> Fault | None:
    """Without the module, only the text of an instruction that defines a value names its uses."""
    found = injector.pick()
    used = injector.used(found[1]) if found else None
    if found is None or used is None or not used.uses:
        return None
    dropped = injector.random.choice(used.uses)
    uses = tuple(new for use in used.uses for new in (change(use) if use is dropped else (use,)))
    if len(set(uses)) < len(uses):
        return None
    texts = {each.name: each.instruction for each in injector.values.values}
    text = texts.get(dropped.instruction, "")
    is_shown = text != "" and not dropped.index and " tuple(" not in text
    is_shown &= f"%{used.name}" in text.replace(",", " ").replace(")", " ").split()
    dump = injector.with_used(used, changed(used, uses=uses))
    return Fault("", dump, certain=True, ids=frozenset({used.id}), by_module=not is_shown)


def _drop_position(injector: Injector) -> Fault | None:
    found = injector.pick()
    used = injector.used(found[1]) if found else None
    if used is None or len(used.positions) < 2:
        return None
    dropped = injector.random.choice(used.positions[1:])
    positions = tuple(each for each in used.positions if each is not dropped)
    dump = injector.with_used(used, changed(used, positions=positions))
    return Fault("", dump, certain=True, ids=frozenset({used.id}), by_module=True)


def _wrong_peak_moment(injector: Injector) -> Fault | None:
    peak = injector.live.peak
    if peak is None:
        return None
    moment = injector.random.randrange(injector.live.end)
    if moment == peak.moment:
        return None
    return Fault("", injector.with_live(peak=changed(peak, moment=moment)), certain=True)


def _wrong_peak_size(injector: Injector) -> Fault | None:
    peak = injector.live.peak
    if peak is None or not peak.buffers:
        return None
    old = injector.random.choice(peak.buffers)
    new = changed(old, size=old.size + injector.random.choice([1, 4096]))
    buffers = tuple(new if each is old else each for each in peak.buffers)
    return Fault("", injector.with_live(peak=changed(peak, buffers=buffers)), certain=True)


def _wrong_tree(injector: Injector) -> Fault | None:
    peak = injector.live.peak
    if peak is None or peak.stack_trace is None or not peak.stack_trace.nodes:
        return None
    nodes = list(peak.stack_trace.nodes)
    place = injector.random.randrange(len(nodes))
    name = injector.random.choice(["total", "current", "remaining", "percent"])
    nodes[place] = changed(nodes[place], **{name: getattr(nodes[place], name) + 1})
    tree = changed(peak.stack_trace, nodes=tuple(nodes))
    return Fault("", injector.with_live(peak=changed(peak, stack_trace=tree)), certain=True)


def _wrong_percent(injector: Injector) -> Fault | None:
    report = injector.dump.report
    if isinstance(report, AllocationReport):
        (row, *rows) = report.rows
        wrong = changed(row, percent=_other_percent(row.percent))
        new = changed(report, rows=(wrong, *rows))
        return Fault("", rebuilt(injector.dump, report=new), certain=True)
    if not isinstance(report, SpaceReport) or not report.spaces[0].tables:
        return None
    space = report.spaces[0]
    table = space.tables[0]
    if table.rest is not None or not table.rows or table.rows[-1].percent != 100:
        return None
    wrong_space = changed(space, tables=(_wrong_table(table), *space.tables[1:]))
    new_report = changed(report, spaces=(wrong_space, *report.spaces[1:]))
    return Fault("", rebuilt(injector.dump, report=new_report), certain=True)


def _wrong_table(table: UsageTable) -> UsageTable:
    row = changed(table.rows[0], percent=_other_percent(table.rows[0].percent))
    return changed(table, rows=(row, *table.rows[1:]))


def _other_percent(percent: int | str) -> int:
    return int(percent) - 20 if str(percent).isdecimal() and int(percent) > 20 else 77


LISTS: dict[str, Maker] = {
    "recolor": on_value(lambda _, __, v: changed(v, color=(v.color or 0) + 1), certain=True),
    "unknown id": on_value(lambda _, __, v: changed(v, id=v.id + 10**6), certain=True),
    "rename": on_value(lambda _, __, v: changed(v, name=v.name + "x"), certain=True),
    "other phi": on_value(lambda _, __, v: changed(v, is_phi=not v.is_phi), certain=True),
    "reshape": on_value(lambda _, __, v: _reshape(v), certain=True),
    "swap ids": _swap_ids,
    "recolor allocation": _recolor_allocation,
    "shrink allocation": _shrink_allocation,
    "grow allocation": _grow_allocation,
    "renumber": _renumber,
    "same number": _same_number,
    "drop allocation": _drop_allocation,
    "empty allocation": _empty_allocation,
    "argument to temporary": _argument_to_temporary,
    "argument renumbered": _argument_renumbered,
    "not live out": _not_live_out,
    "live out": _live_out,
    "lose output": _lose_output,
    "other output shape": _other_output_shape,
    "forget": _forget,
    "drop use": _drop_use,
    "other operand": _other_operand,
    "drop position": _drop_position,
    "wrong total": _wrong_total,
    "wrong report": _wrong_report,
    "wrong percent": _wrong_percent,
    "wrong peak": _wrong_peak,
    "wrong peak moment": _wrong_peak_moment,
    "wrong peak size": _wrong_peak_size,
    "wrong tree": _wrong_tree,
}
