"""An improved program as data: its saving, its lower bound, the method of the search."""

from __future__ import annotations

from importlib import import_module
from typing import Literal, TypeAlias

from hlomem.dump.records import Record
from hlomem.report.data.front import CodeAdvice, FrontPoint  # noqa: TC001 - msgspec reads them

Verdict: TypeAlias = Literal["at the bound", "proven", "open"]


class ComputationOrder(Record, frozen=True, kw_only=True):
    name: str
    instructions: int
    given_peak: int
    """The peak of live temporaries in the given order, packing aside."""
    peak: int
    """The same in the order found."""
    method: str
    proven: bool
    """Whether no permitted order has a lower peak."""


class TightPacking(Record, frozen=True, kw_only=True):
    """Temporaries in the best packing found, which is not XLA's, before and after."""

    before: int
    before_proven: bool
    """Whether no packing of that order is smaller."""
    after: int
    after_proven: bool


class ComputedAgain(Record, frozen=True, kw_only=True):
    """Values rematerialized in addition to the better order, and their cost."""

    ordered: int
    """Bytes of temporaries in the order alone, as planned."""
    instructions: int
    """Instructions outside loops that run twice."""
    stacks: int
    """Removed stacks of loops, whose values are rematerialized in the loop that reads them."""
    flops: int
    """Operations in addition to `program_flops`, by our count."""
    program_flops: int
    time: int
    """Time in addition to `program_time`, by the model of `hlomem.opt.orders.cost`."""
    program_time: int
    lines: tuple[str, ...] = ()


class ImprovementReport(Record, frozen=True, kw_only=True):
    name: str
    backend: str
    effort: str
    before: int
    """Bytes of temporaries in the given order, as planned."""
    after: int
    """Bytes of temporaries in the order found, with rematerialization, as planned."""
    bound: int | None
    """A lower bound for every order, if known; rematerialization may need less."""
    verdict: Verdict
    """On the order alone. `at the bound`: no order needs less. `proven`: no order keeps less alive;
    packing may lose some. `open`: a better one may exist."""
    method: str
    computations: tuple[ComputationOrder, ...]
    """Computations in a new order, the entry first."""
    packing: TightPacking | None = None
    again: ComputedAgain | None = None
    """None if nothing is rematerialized."""
    notes: tuple[str, ...] = ()
    front: tuple[FrontPoint, ...] = ()
    """Memory against operations, cheapest first, if requested."""
    limit: int | None = None
    """The memory budget for all allocations, if given."""
    advice: tuple[CodeAdvice, ...] = ()
    """Changes of the program's source that come near to points of the front."""

    @property
    def saves(self) -> int:
        return self.before - self.after

    def __str__(self) -> str:
        """The screen of `hlomem improve`; imported by name, since data must not import screens."""
        return str(import_module("hlomem.report.screens.improvement_text").format_improvement(self))
