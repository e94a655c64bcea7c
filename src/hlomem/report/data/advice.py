"""Advice as data: possible savings, with confidence and cost; made by `hlomem.advice`."""

from __future__ import annotations

from importlib import import_module
from typing import Literal, TypeAlias

from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record

Method: TypeAlias = Literal["re-planned", "counted"]
Confidence: TypeAlias = Literal["high", "medium", "low"]


class Advice(Record, frozen=True, kw_only=True):
    """One thing to change."""

    rule: str
    title: str
    argument: str = ""
    """The part of the program it is about (arguments, a policy), unless the rule says it."""
    least: int = 0
    """A lower bound of the bytes saved."""
    most: int = 0
    """An upper bound of the bytes saved."""
    method: Method = "counted"
    """`re-planned`: the difference of two plans. `counted`: live bytes replayed without them."""
    confidence: Confidence = "medium"
    cost: str
    """Its cost, and what it can break."""
    how: str
    """Code to write or a command to run, possibly several lines."""
    link: str

    @property
    def middle(self) -> int:
        return (self.least + self.most) // 2


class AdviceReport(Record, frozen=True, kw_only=True):
    """Advice about a program's memory."""

    name: str
    space: str
    size: int
    """Bytes reserved by the program's plan."""
    advice: tuple[Advice, ...]
    """Sorted by bytes saved, weighted by confidence."""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The screen of `hlomem advise`; imported by name, since data must not import screens."""
        return str(import_module("hlomem.report.screens.advice_text").format_advice(self))

    def __repr__(self) -> str:
        size = format_bytes(self.size)
        return (
            f"<AdviceReport {self.name[-80:]!r}: {size} in {self.space}, {len(self.advice)} ways>"
        )
