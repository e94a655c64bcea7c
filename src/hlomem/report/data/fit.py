"""The largest value of a setting that fits, for each combination of the others; planned by XLA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import field

from hlomem.dump.records import Record

if TYPE_CHECKING:
    from hlomem.machines.capacity import Capacity


class FitPlan(Record, frozen=True, kw_only=True):
    value: int
    """Of the setting that is increased; 0 where there is none."""
    size: int
    fits: bool
    cpu_seconds: float
    """0 if the plan came from the cache."""
    flops: int | None = None
    """Of matrix products, as traced, on all devices together."""
    device_flops: int | None = None
    """The same on one device, as compiled."""
    sent: int | None = None
    """Bytes that one device sends to others in a run, as compiled."""
    seconds: float | None = None
    """A run by the model of docs/jax.md, which knows neither latencies nor kernels."""
    host: int = 0
    """Bytes in the memory of one host, those of all its devices."""
    roles: dict[str, int] = field(default_factory=dict)
    """`size` by what the bytes are for."""


class FitRow(Record, frozen=True, kw_only=True):
    settings: dict[str, Any]
    plans: tuple[FitPlan, ...]
    """In the order they were made."""
    largest: int
    """The largest value known to fit; 0 if none."""
    smallest_refused: int | None
    """The smallest value known not to fit; None if none was found."""
    is_proven: bool
    """Whether these two are neighbours; of a row without values, whether it was planned."""
    base: int
    """Bytes at value 0, extrapolated from the first two plans."""
    per_item: float
    """Bytes per unit of the value, from the same line."""
    work: float | None = None
    """FLOPs of matrix products relative to the cheapest row at the same value, if known."""
    target: str = ""
    capacity: int = 0
    """Bytes of one device of the target."""
    chips: int = 0
    price: float | None = None
    """Of an hour of all chips, where prices were given."""
    is_cheapest: bool = False
    """Whether it is the cheapest row that fits."""
    is_scaled: bool = False
    """Whether plans at two values told those at others, so that fewer were made."""
    problem: str = ""
    """Why there is no plan, in one line."""
    command: str = ""
    """The command line of the factory's own stack for the largest value, if the factory has one."""

    @property
    def best(self) -> FitPlan | None:
        """The plan of the largest value that fits."""
        return next((plan for plan in self.plans if plan.fits and plan.value == self.largest), None)

    @property
    def is_answered(self) -> bool:
        """Whether it fits at some value, and that is proven."""
        return self.is_proven and self.best is not None


class FitReport(Record, frozen=True, kw_only=True):
    factory: str
    target: str
    """Of all rows that do not name their own."""
    over: str
    """The setting that is increased; empty where none is."""
    step: int
    """Values are multiples of it."""
    capacity: Capacity | None
    """Of that target."""
    settings: dict[str, Any]
    """The settings common to all rows."""
    rows: tuple[FitRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def cheapest(self) -> FitRow | None:
        return next((row for row in self.rows if row.is_cheapest), None)
