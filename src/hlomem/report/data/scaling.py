"""The plans of a program at several sizes, of which two were compiled: plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.dump.records import Record

if TYPE_CHECKING:
    from hlomem.machines.capacity import Capacity


class SizedPlan(Record, frozen=True, kw_only=True):
    """The plan at one size."""

    value: int
    """The size: of a batch, or of whatever was made larger."""
    size: int
    """Bytes that must fit."""
    temporaries: int
    """Bytes of these that only intermediate values need."""
    is_given: bool
    """Whether the program was given as it was compiled at this size."""


class ScaleReport(Record, frozen=True, kw_only=True):
    """A program at several sizes."""

    program: str
    machine: str
    sizes: tuple[int, int]
    """Those at which it was compiled."""
    plans: tuple[SizedPlan, ...]
    """By size."""
    step: int
    """The largest is a multiple of it."""
    capacity: Capacity | None
    largest: int | None
    """The largest size whose plan fits the capacity; 0 where none does, None where none was asked
    for."""
    smallest_refused: int | None
    """The next size, whose plan does not; None where none was found."""
    notes: tuple[str, ...] = ()
