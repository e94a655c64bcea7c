"""How large a program may be made before it no longer fits, for each way of making it: plain data.

Every size is one that XLA planned; the line through the first two is what the search began with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.dump.records import Record

if TYPE_CHECKING:
    from hlomem.machines.capacity import Capacity


class FitPlan(Record, frozen=True, kw_only=True):
    """One plan of a row."""

    value: int
    size: int
    """Bytes XLA reserves in the device's memory."""
    fits: bool
    cpu_seconds: float
    """0 where it was planned before."""
    flops: int | None = None


class FitRow(Record, frozen=True, kw_only=True):
    """One way of making the program."""

    settings: dict[str, Any]
    """The settings that tell it from the other rows."""
    plans: tuple[FitPlan, ...]
    """In the order they were made."""
    largest: int
    """The largest value known to fit; 0 where none is."""
    smallest_refused: int | None
    """The smallest value above it known not to fit; None where none was found."""
    is_proven: bool
    """Whether these two are neighbours."""
    base: int
    """Bytes at value 0, by the line through the first two plans."""
    per_item: float
    """Bytes one more costs, by the same line."""
    work: float | None
    """Matrix products, in relation to the row with the fewest at the same value; None where that is
    not known."""

    @property
    def best(self) -> FitPlan | None:
        """The plan of the largest value that fits."""
        return next((plan for plan in self.plans if plan.fits and plan.value == self.largest), None)


class FitReport(Record, frozen=True, kw_only=True):
    """All rows of a search."""

    factory: str
    target: str
    over: str
    """The setting that was made larger."""
    step: int
    """Values are multiples of it."""
    capacity: Capacity
    settings: dict[str, Any]
    """The settings all rows have in common."""
    rows: tuple[FitRow, ...]
    notes: tuple[str, ...] = ()
