"""A better order as data: what it saves, how near to the least it is, how it was found.

Made by `hlomem.api.improve`; drawn by `improvement_text`, and by the page of both orders.
"""

from __future__ import annotations

from importlib import import_module
from typing import Literal, TypeAlias

from hlomem.dump.records import Record
from hlomem.report.data.front import CodeAdvice, FrontPoint  # noqa: TC001 - msgspec reads them

Verdict: TypeAlias = Literal["at the bound", "proven", "open"]


class ComputationOrder(Record, frozen=True, kw_only=True):
    """The order of one computation."""

    name: str
    instructions: int
    given_peak: int
    """The most bytes of temporaries alive at once in the given order, packing aside."""
    peak: int
    """The same in the order found."""
    method: str
    proven: bool
    """Whether no order that keeps the rules has a lower peak."""


class TightPacking(Record, frozen=True, kw_only=True):
    """Temporaries in the best packing that was found; XLA packs by its own rules, and not so."""

    before: int
    """Bytes in the given order."""
    before_proven: bool
    """Whether no packing of that order is smaller."""
    after: int
    """Bytes in the order found."""
    after_proven: bool


class ComputedAgain(Record, frozen=True, kw_only=True):
    """Values computed again beside the better order, and their price."""

    ordered: int
    """Bytes of temporaries in the order alone, as planned."""
    instructions: int
    """Instructions outside of loops that run twice."""
    stacks: int
    """Stacks of loops that are gone: what they held is computed again in the loop that reads it."""
    flops: int
    """Operations more than in the program as given, by our count."""
    program_flops: int
    """Operations of the program as given."""
    time: int
    """Time more than that of the program as given, by the model of `hlomem.opt.orders.cost`."""
    program_time: int
    """The time of the program as given."""
    lines: tuple[str, ...] = ()
    """Lines of the user's code whose values are computed again, those with most bytes first."""


class ImprovementReport(Record, frozen=True, kw_only=True):
    """The worth of a better order."""

    name: str
    backend: str
    effort: str
    before: int
    """Bytes of temporaries in the given order, as planned."""
    after: int
    """Bytes of temporaries in the order found, as planned, and with what is computed again."""
    bound: int | None
    """Bytes of temporaries that no order of the given instructions can do without; None where it is
    not known. With values computed again a program may need less."""
    verdict: Verdict
    """Of the order alone. `at the bound`: no order needs less. `proven`: none keeps less alive;
    packing may lose some. `open`: there may be a better one."""
    method: str
    computations: tuple[ComputationOrder, ...]
    """Those whose order is another, the entry first."""
    packing: TightPacking | None = None
    """The needs of a tighter packing; None where it was not asked for."""
    again: ComputedAgain | None = None
    """None where nothing is computed again."""
    notes: tuple[str, ...] = ()
    front: tuple[FrontPoint, ...] = ()
    """Memory against operations, the cheapest first; empty where it was not asked for."""
    limit: int | None = None
    """Bytes that all allocations may take, where a number was named."""
    advice: tuple[CodeAdvice, ...] = ()
    """Changes of the program's source that come near to points of the front."""

    @property
    def saves(self) -> int:
        """Bytes less."""
        return self.before - self.after

    def __str__(self) -> str:
        """The screen of `hlomem improve`; found by name, as data knows nothing of screens."""
        return str(import_module("hlomem.report.screens.improvement_text").format_improvement(self))
