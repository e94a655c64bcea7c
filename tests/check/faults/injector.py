"""A real plan, and the means to change one thing in it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace as changed

from hlomem.dump.dump import Dump
from hlomem.dump.parts import Contents
from hlomem.dump.records import (
    Allocation,
    AssignedValue,
    Assignment,
    LiveRange,
    LiveRanges,
    UsedValue,
    Values,
)
from hlomem.hlo.ir import HloModule
from hlomem.machines.machine import Machine


def rebuilt(dump: Dump, **parts: object) -> Dump:
    """`dump` with other records in place of its own, all in one file."""
    contents = Contents(dump.assignment, dump.values, dump.live_ranges, dump.report)
    part = dump.parts[0]._replace(contents=contents._replace(**parts))  # type: ignore[arg-type]
    return changed(dump, parts=(part,), open_module=None)


class Fault(NamedTuple):
    """A plan with one thing changed."""

    kind: str
    dump: Dump
    certain: bool | None = None
    """Whether it does harm, where that is clear from how it was made."""
    ids: frozenset[int] = frozenset()
    by_module: bool = False
    """Whether only the module shows that it does harm."""


class Injector:
    """Makes faults of every kind in one plan."""

    def __init__(self, dump: Dump, module: HloModule, machine: Machine, seed: int) -> None:
        assert dump.assignment is not None
        assert dump.live_ranges is not None
        assert dump.values is not None
        self.dump = dump
        self.module = module
        self.machine = machine
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

    def make(self, kind: str, maker: Maker) -> Fault | None:
        """A fault of a kind, if this try finds a place for it in the plan."""
        made = maker(self)
        return made._replace(kind=kind) if made is not None else None

    def pick(self, *, shared: bool = False) -> tuple[Allocation, AssignedValue] | None:
        pool = self.shared if shared else self.placed
        return self.random.choice(pool) if pool else None

    def alignment(self, allocation: Allocation) -> int:
        return self.machine.alignment(allocation.color) or 1

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
        return self.with_live(ranges=ranges)

    def with_live(self, **parts: object) -> Dump:
        return rebuilt(self.dump, live_ranges=changed(self.live, **parts))

    def with_used(self, old: UsedValue, new: UsedValue) -> Dump:
        values = tuple(new if each is old else each for each in self.values.values)
        return rebuilt(self.dump, values=changed(self.values, values=values))

    def used(self, value: AssignedValue) -> UsedValue:
        return next(each for each in self.values.values if each.id == value.id)

    def range_of(self, value: AssignedValue) -> LiveRange | None:
        key = (value.name, value.index or ())
        return next(
            (each for each in self.live.ranges if (each.instruction, each.index) == key), None
        )


Maker = Callable[[Injector], Fault | None]


def on_value(
    change: Callable[[Injector, Allocation, AssignedValue], AssignedValue | None],
    *,
    shared: bool = False,
    certain: bool | None = None,
) -> Maker:
    """A fault in one value's line."""

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
