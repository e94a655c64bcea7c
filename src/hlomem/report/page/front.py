"""The trade-off of memory against operations, as the page draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.dump.records import Record
from hlomem.report.data.code_advice import describe_fit, price_of

if TYPE_CHECKING:
    from hlomem.report.data.front import CodeAdvice, FrontPoint
    from hlomem.report.data.improvement import ImprovementReport


class PageFront(Record, frozen=True, kw_only=True):
    answer: str
    points: tuple[FrontPoint, ...]
    limit: int | None
    advice: tuple[CodeAdvice, ...]
    notes: tuple[str, ...]


def build_front(report: ImprovementReport) -> PageFront | None:
    if not report.front:
        return None
    return PageFront(
        answer=_answer(report),
        points=report.front,
        limit=report.limit,
        advice=report.advice,
        notes=report.notes,
    )


def _answer(report: ImprovementReport) -> str:
    if report.limit is not None:
        return f"{describe_fit(report.front, report.limit)}."
    given = next(point for point in report.front if point.kind == "given")
    least = min(report.front, key=lambda point: (point.temporaries, point.flops))
    if least.temporaries == given.temporaries:
        return f"Nothing was found below the {format_bytes(given.temporaries)} of XLA's program."
    sizes = f"{format_bytes(given.temporaries)} to {format_bytes(least.temporaries)}"
    return f"Temporaries from {sizes}: the smallest costs {price_of(least)}: {least.name}."
