"""Advice as data: possible savings, with their cost; made by `hlomem.advice` and `hlomem.jax`."""

from __future__ import annotations

from importlib import import_module
from typing import Literal, TypeAlias

from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record

Method: TypeAlias = Literal["compiled", "re-planned", "possible"]
Confidence: TypeAlias = Literal["high", "medium", "low"]


class Advice(Record, frozen=True, kw_only=True):
    """One thing to change."""

    rule: str
    title: str
    argument: str = ""
    """The part of the program it is about (arguments, a policy), unless the rule says it."""
    least: int | None = None
    """A lower bound of the bytes promised; None if the change was not planned."""
    most: int | None = None
    """An upper bound of the bytes promised."""
    got: int | None = None
    """Bytes saved by the change as XLA compiled it; None if it was not compiled."""
    method: Method
    """`compiled`: the changed source, compiled by XLA. `re-planned`: the difference of two plans of
    hlomem. `possible`: not tried, so no bytes are promised."""
    confidence: Confidence
    cost: str
    """Its cost, and what it can break."""
    how: str
    """Code to write, a command to run, or a diff of the source."""
    link: str

    @property
    def saves(self) -> int:
        """Bytes saved, got or else the middle of the promise; 0 for a possibility."""
        if self.got is not None:
            return self.got
        return ((self.least or 0) + (self.most or 0)) // 2


class FittingSet(Record, frozen=True, kw_only=True):
    """Changes taken together, so that a program fits, or as near to that as was reached."""

    limit: int | None
    limit_name: str
    titles: tuple[str, ...]
    """The changes; empty if the program fits as it is."""
    size: int
    """Bytes of the changed program, as XLA compiled it."""
    fits: bool
    cost: str
    how: str
    """One diff of the source."""
    tried: int
    """Combinations that were compiled."""


class AdviceReport(Record, frozen=True, kw_only=True):
    """Advice about a program's memory."""

    name: str
    space: str
    size: int
    """Bytes reserved by the program's plan."""
    advice: tuple[Advice, ...]
    """Sorted by bytes saved; what was not tried comes last."""
    target: str = ""
    """The machine that changes were compiled for; empty if none was."""
    together: FittingSet | None = None
    """The set of changes that fits, or all that go together; None if none was compiled."""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The screen of `hlomem advise`; imported by name, since data must not import screens."""
        return str(import_module("hlomem.report.screens.advice_text").format_advice(self))

    def __repr__(self) -> str:
        size = format_bytes(self.size)
        return (
            f"<AdviceReport {self.name[-80:]!r}: {size} in {self.space}, {len(self.advice)} ways>"
        )
