"""Draws a `Timeline`: one screen for a device's memory over a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.owner_rows_text import draw_notes, draw_owners
from hlomem.report.screens.text import Line, curve, percent, plural, shorten, wrapped

if TYPE_CHECKING:
    from hlomem.job.timeline import Timeline

_CURVE = 60


def draw_job_timeline(timeline: Timeline, width: int) -> list[Line]:
    """The lines of the screen."""
    return [
        [(shorten(visible(timeline.name), width), "bold")],
        *wrapped(_head(timeline), width),
        *wrapped(_peak(timeline), width),
        [(f"  {_shape(timeline, width - 14)}", "green"), ("  over time", "dim")],
        [],
        [(shorten(_moment(timeline), width), "bold")],
        *draw_owners(timeline.moment.rows, timeline.moment.in_use, width),
        [],
        *wrapped(_trust(timeline), width, style="dim"),
        *draw_notes(timeline.notes, width),
    ]


def _head(timeline: Timeline) -> str:
    seconds = timeline.end - timeline.start
    words = (
        f"{timeline.allocator}: {plural(timeline.events, 'event')} in {seconds:.3f} s,"
        f" {plural(timeline.executions, 'run')} of {plural(len(timeline.programs), 'program')}"
    )
    if timeline.others:
        words += f"; also here: {', '.join(visible(name) for name in timeline.others)}"
    return words


def _peak(timeline: Timeline) -> str:
    words = (
        f"Peak {format_bytes(timeline.peak)} of {format_bytes(timeline.limit)} at"
        f" {timeline.peak_time:.3f} s; {format_bytes(timeline.final)} in use at the end"
    )
    if timeline.pool is not None:
        words += f"; pool {format_bytes(timeline.pool)}, {timeline.pool_kind}"
    return words


def _shape(timeline: Timeline, columns: int) -> str:
    """Bytes in use over the time of the trace, the most in each column."""
    count = min(_CURVE, columns)
    span = max(timeline.end - timeline.start, 1e-12)
    most = [0] * count
    last = timeline.older
    place = 0
    for point in timeline.curve:
        here = min(count - 1, int((point.time - timeline.start) / span * count))
        for between in range(place, here):
            most[between] = max(most[between], last)
        most[here] = max(most[here], last, point.in_use)
        place, last = here, point.in_use
    return curve(most, timeline.peak)


def _moment(timeline: Timeline) -> str:
    moment = timeline.moment
    what = "at the peak" if moment.in_use == timeline.peak else f"at {moment.time:.3f} s"
    title = f"{format_bytes(moment.in_use)} in use {what}"
    if moment.largest_free is not None:
        title += f", the largest free block {format_bytes(moment.largest_free)}"
    return title


def _trust(timeline: Timeline) -> str:
    """How far the figures are the allocator's own."""
    words = "sums and peak are the allocator's own at every event"
    if not timeline.is_exact:
        words = "sums are not the allocator's own at every event"
    share = percent(timeline.moment.with_line, timeline.moment.in_use)
    words += f"; lines are known for {share} of these bytes"
    if timeline.pool is not None:
        agree = f"{timeline.twin_agrees} of {timeline.events}"
        words += f"; the replayed allocator has the same addresses and sums at {agree} events"
    return words
