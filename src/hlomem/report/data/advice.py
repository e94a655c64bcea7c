"""Advice as data: what would save memory, by how much, how sure that is and what it costs.

Made by `hlomem.advice.advising`, which tries changes with the planner; drawn by `advice_text`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Literal, TypeAlias

from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record

Method: TypeAlias = Literal["re-planned", "counted"]
Confidence: TypeAlias = Literal["high", "medium", "low"]
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")


class Advice(Record, frozen=True, kw_only=True):
    """One thing to change."""

    rule: str
    title: str
    saves: int
    """Bytes: of two plans the difference, or an upper bound where it is only counted."""
    method: Method
    confidence: Confidence
    cost: str
    """What it costs, or can break."""
    how: str
    """What to write or to type."""
    link: str


class AdviceReport(Record, frozen=True, kw_only=True):
    """What can be done about a program's memory."""

    name: str
    space: str
    size: int
    """What the program's plan reserves."""
    advice: tuple[Advice, ...]
    """Re-planned first, then counted; each by what it saves."""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The screen of `hlomem advise`; found by name, as data knows nothing of screens."""
        return str(import_module("hlomem.report.screens.advice_text").format_advice(self))

    def __repr__(self) -> str:
        size = format_bytes(self.size)
        return (
            f"<AdviceReport {self.name[-80:]!r}: {size} in {self.space}, {len(self.advice)} ways>"
        )
