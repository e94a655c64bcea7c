"""The largest value of a setting that fits, for each combination of the others; planned by XLA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.dump.records import Record

if TYPE_CHECKING:
    from hlomem.machines.capacity import Capacity


class FitPlan(Record, frozen=True, kw_only=True):
    value: int
    size: int
    fits: bool
    cpu_seconds: float
    """0 if the plan came from the cache."""
    flops: int | None = None


class FitRow(Record, frozen=True, kw_only=True):
    settings: dict[str, Any]
    plans: tuple[FitPlan, ...]
    """In the order they were made."""
    largest: int
    """The largest value known to fit; 0 if none."""
    smallest_refused: int | None
    """The smallest value known not to fit; None if none was found."""
    is_proven: bool
    """Whether these two are neighbours."""
    base: int
    """Bytes at value 0, extrapolated from the first two plans."""
    per_item: float
    """Bytes per unit of the value, from the same line."""
    work: float | None
    """FLOPs of matrix products relative to the cheapest row at the same value, if known."""

    @property
    def best(self) -> FitPlan | None:
        return next((plan for plan in self.plans if plan.fits and plan.value == self.largest), None)


class FitReport(Record, frozen=True, kw_only=True):
    factory: str
    target: str
    over: str
    step: int
    """Values are multiples of it."""
    capacity: Capacity
    settings: dict[str, Any]
    """The settings common to all rows."""
    rows: tuple[FitRow, ...]
    notes: tuple[str, ...] = ()
