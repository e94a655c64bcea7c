"""Draws a `Now`: one screen for one instant of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.owner_rows_text import draw_notes, draw_owners
from hlomem.report.screens.text import Line, plural, shorten, wrapped

if TYPE_CHECKING:
    from hlomem.job.instant import Now, NowProgram

_TOP_PROGRAMS = 6
_FITS = {True: "fits", False: "does not fit", None: "fits or not by the order of blocks"}


def draw_now(now: Now, width: int) -> list[Line]:
    """The lines of the screen."""
    whole = now.in_use if now.in_use is not None else now.arrays
    lines: list[Line] = [[(shorten(visible(now.device), width), "bold")]]
    lines += [*wrapped(_head(now), width), [], *draw_owners(now.rows, whole, width)]
    lines += draw_owners(now.rest, whole, width)
    if now.programs:
        lines += [[], [("Programs that are loaded, and what a run asks for", "bold")]]
        lines += [_program(program, now, width) for program in now.programs[:_TOP_PROGRAMS]]
        if more := now.programs[_TOP_PROGRAMS:]:
            left = plural(sum(program.count for program in more), "more program")
            lines.append([(f"  {left} that ask for less", "dim")])
    return [*lines, *([[]] if now.notes else []), *draw_notes(now.notes, width)]


def _head(now: Now) -> str:
    if now.in_use is None:
        return f"{format_bytes(now.arrays)} in arrays"
    words = f"{format_bytes(now.in_use)} in use"
    if now.limit is not None and now.free is not None:
        words += f" of {format_bytes(now.limit)}, {format_bytes(now.free)} free"
    if now.largest_block is not None:
        words += f", the largest block {format_bytes(now.largest_block)}"
    if now.pool is not None:
        words += f"; pool {format_bytes(now.pool)}"
    if now.peak is not None:
        words += f"; peak so far {format_bytes(now.peak)}"
    return words


def _program(program: NowProgram, now: Now, width: int) -> Line:
    times = f" (× {program.count})" if program.count > 1 else ""
    verdict = "" if now.free is None else f"  {_FITS[program.fits]}"
    head = f"  {format_bytes(program.asks):>10}  "
    name = shorten(visible(program.name) + times, width - len(head) - len(verdict))
    return [(head, ""), (name, "cyan"), (verdict, "red" if program.fits is False else "dim")]
