"""The plans of a program at several sizes, two of them compiled: plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.dump.records import Record

if TYPE_CHECKING:
    from hlomem.machines.capacity import Capacity


class SizedPlan(Record, frozen=True, kw_only=True):
    value: int
    """The size, of a batch or another dimension."""
    size: int
    """Bytes that must fit."""
    temporaries: int
    is_given: bool


class ScaleReport(Record, frozen=True, kw_only=True):
    program: str
    machine: str
    sizes: tuple[int, int]
    plans: tuple[SizedPlan, ...]
    """By size."""
    step: int
    """`largest` is a multiple of it."""
    capacity: Capacity | None
    largest: int | None
    """The largest size whose plan fits the capacity, 0 if none does; None without a capacity."""
    smallest_refused: int | None
    """The next size, whose plan does not fit; None if none was found."""
    notes: tuple[str, ...] = ()
