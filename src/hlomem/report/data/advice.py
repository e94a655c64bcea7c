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


class Advice(Record, frozen=True, kw_only=True):
    """One thing to change."""

    rule: str
    title: str
    argument: str = ""
    """The part of the program it is about: arguments, a policy; empty where the rule tells."""
    least: int
    """Bytes that it saves at least, as far as can be told."""
    most: int
    """Bytes that it saves at most; the same number where one is known."""
    method: Method
    """`re-planned`: of two plans the difference. `counted`: what is alive, replayed without it."""
    confidence: Confidence
    cost: str
    """Its cost, and what it can break."""
    how: str
    """The code to write or the command to type, in one or several lines."""
    link: str

    @property
    def middle(self) -> int:
        """Half way between the least and the most."""
        return (self.least + self.most) // 2


class AdviceReport(Record, frozen=True, kw_only=True):
    """Advice about a program's memory."""

    name: str
    space: str
    size: int
    """The bytes the program's plan reserves."""
    advice: tuple[Advice, ...]
    """By the bytes it saves, those that are sure before those that are not."""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The screen of `hlomem advise`; found by name, as data knows nothing of screens."""
        return str(import_module("hlomem.report.screens.advice_text").format_advice(self))

    def __repr__(self) -> str:
        size = format_bytes(self.size)
        return (
            f"<AdviceReport {self.name[-80:]!r}: {size} in {self.space}, {len(self.advice)} ways>"
        )
