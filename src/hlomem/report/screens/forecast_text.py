"""Draws a `JobReport`: whether a whole job fits, and who holds its peak."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.owner_rows_text import draw_notes, draw_owners
from hlomem.report.screens.text import Line, plural, shorten, wrapped

if TYPE_CHECKING:
    from hlomem.job.forecast import Forecast
    from hlomem.job.report import JobReport, Largest


def draw_forecast(report: JobReport, width: int) -> list[Line]:
    """The lines of the screen."""
    found = report.forecast
    lines: list[Line] = [[(shorten(visible(found.name), width), "bold")]]
    lines += wrapped(_answer(found), width, style="red" if found.failure else "")
    lines += wrapped(_pools(report), width)
    so_far = " before that" if found.failure else ""
    title = f"Peak {format_bytes(found.peak)}{so_far}, {visible(found.peak_at)}"
    lines += [[], [(shorten(title, width), "bold")]]
    lines += draw_owners(found.rows, found.peak, width)
    for advice in report.advice:
        lines += [[], *wrapped(advice, width, "- ")]
    if found.modelled:
        lines += [[], [("Modelled, not XLA's own plan", "bold")]]
        lines += [line for words in found.modelled for line in wrapped(words, width, "  - ")]
    return [*lines, *draw_notes(found.notes, width)]


def draw_largest(found: Largest, width: int) -> list[Line]:
    """The lines of the screen for the largest value of a setting."""
    lines: list[Line] = [[(shorten(visible(found.name), width), "bold")]]
    pool = format_bytes(found.limit)
    setting = visible(found.setting)
    answer = f"largest {setting} in a pool of {pool}: {found.value}"
    if not found.value:
        answer = f"no {setting} that was tried fits in a pool of {pool}"
    if found.refused is not None:
        answer += f"; {found.refused} does not fit"
    if not found.is_proven:
        answer += "; between them nothing was tried"
    lines += [*wrapped(answer, width), []]
    for value, size in found.tried.items():
        words = "" if size <= found.limit else "  does not fit"
        lines.append([(f"  {setting}={value:<12} needs {format_bytes(size):>10}{words}", "")])
    return lines


def _answer(found: Forecast) -> str:
    how = "a pool that grows" if found.grows else "a pool taken at once"
    where = f"in {format_bytes(found.limit)}"
    if not found.is_summed:
        where = f"in {how} of {format_bytes(found.limit)}"
    amount = f"{plural(found.runs, 'run')}, {plural(found.requests, 'request')}"
    if found.failure is None:
        return f"Fits {where}: {amount}"
    failure = found.failure
    return (
        f"Does not fit {where}: {failure.words} asks for {format_bytes(failure.size)};"
        f" {format_bytes(failure.in_use)} are in use, the largest block is"
        f" {format_bytes(failure.largest_free)}"
    )


def _pools(report: JobReport) -> str:
    found = report.forecast
    words = []
    if found.is_summed:
        return f"the sum of what is alive at once is {format_bytes(found.peak)} at most"
    if found.smallest_pool is not None:
        words.append(f"the smallest pool, taken at once, is {format_bytes(found.smallest_pool)}")
        if report.fraction is not None and report.fraction <= 1:
            share = ceil(1000 * report.fraction) / 1000
            words.append(f"XLA_PYTHON_CLIENT_MEM_FRACTION={share:.3f} of the device")
    if found.grows and found.failure is None:
        words.append(f"a pool that grows becomes {format_bytes(found.pool)}")
    return "; ".join(words)
