"""Draws an `Oom`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.oom.verdict import draw_verdict
from hlomem.report.screens.text import (
    Line,
    bar,
    percent,
    plural,
    shorten,
    shorten_front,
    wrap,
    wrapped,
)

if TYPE_CHECKING:
    from hlomem.report.oom.explanation import BufferGroup, NextStep, Oom
    from hlomem.report.oom.log import Breakdown, BreakdownPart, Failure

TOP_GROUPS = 8
_SMALLEST = 0.001
"""Fraction of the named bytes below which a group is not shown."""
_BAR = 16
_NARROWEST = 8
"""The fewest columns worth a name."""
_MOMENTS = {
    "compile": "when compiling",
    "run": "when running",
    "rematerialization": "warned of by rematerialization",
}


def draw_oom(oom: Oom, width: int) -> list[Line]:
    lines = [*_head(oom, width), *_verdict(oom, width)]
    for breakdown in oom.log.breakdowns:
        lines += _breakdown(breakdown, width)
    if oom.groups and oom.kernel is None:
        lines += _named(oom, width)
    if oom.findings:
        lines += [[], [("What it says", "bold")]]
        for finding in oom.findings:
            lines += wrapped(finding, width, "  - ")
    lines += [[], [("What next", "bold")]]
    for step in oom.steps:
        lines += _step(step, width)
    return lines


def _head(oom: Oom, width: int) -> list[Line]:
    failure = oom.failure
    where = f" on {failure.platform.upper()}" if failure.platform else ""
    program = f", {failure.module}" if failure.module else ""
    title = f"Out of memory{where} {_MOMENTS[failure.moment]}{program}"
    return [[(shorten(visible(title), width), "bold")], *wrapped(_amounts(oom, failure), width)]


def _verdict(oom: Oom, width: int) -> list[Line]:
    """Why, and what to do, where the text tells."""
    if oom.verdict is None or oom.verdict.kind == "unknown":
        return []
    first, *rest = draw_verdict(oom.verdict)
    lines: list[Line] = [[], *([(line, "bold")] for line in wrap(first, width))]
    for line in rest:
        indent = len(line) - len(line.lstrip())
        is_code = indent > len("  - ")
        if is_code:
            lines.append([(line, "cyan")])
        else:
            lines += [[(part, "")] for part in wrap(line.strip(), width, "  ", "    ")]
    if oom.log.place:
        lines += [[(line, "")] for line in wrap(f"raised at {oom.log.place}", width, "  - ")]
    return lines


def _amounts(oom: Oom, failure: Failure) -> str:
    """Needed, available and missing, in one sentence."""
    space = f" of {failure.space}" if failure.space else ""
    if failure.needed is None:
        return f"the message does not say how much{space}"
    verb = "asked for" if failure.moment == "run" else "needs"
    where = " on each device" if failure.moment == "compile" and failure.space == "hbm" else ""
    said = f"{verb} {format_bytes(failure.needed)}{space}{where}"
    if failure.available is not None:
        there = "free" if failure.moment == "run" else "available"
        said += f", {format_bytes(failure.available)} {there}"
    if oom.missing:
        said += f": over by {format_bytes(oom.missing)}"
    return said


def _breakdown(breakdown: Breakdown, width: int) -> list[Line]:
    parts = [part for part in breakdown.parts if part.size]
    if not parts:
        return []
    total = breakdown.total or sum(part.size for part in parts)
    head = f"{visible(breakdown.name)}: {format_bytes(total)}"
    return [[], [(head, "bold")], *_rows(parts, total, width)]


def _rows(parts: list[BreakdownPart], total: int, width: int) -> list[Line]:
    columns = min(max(len(visible(part.name)) for part in parts), width - 24 - _BAR)
    return [
        [
            (f"  {shorten(visible(part.name), columns):<{columns}}  ", ""),
            (f"{format_bytes(part.size):>10}", "cyan"),
            (f"  {percent(part.size, total):>6}  ", ""),
            (bar(part.size, total, _BAR), "green"),
        ]
        for part in parts
    ]


def _named(oom: Oom, width: int) -> list[Line]:
    count = sum(group.count for group in oom.groups)
    head = f"The {plural(count, 'buffer')} it names: {format_bytes(oom.named)}"
    lines: list[Line] = [[], [(head, "bold")], *_rows(list(oom.roles), oom.named, width), []]
    shown = [group for group in oom.groups[:TOP_GROUPS] if group.size > _SMALLEST * oom.named]
    for group in shown:
        lines += _group(group, oom.named, width)
    if rest := oom.groups[len(shown) :]:
        size, buffers = sum(group.size for group in rest), sum(group.count for group in rest)
        lines.append([(f"  {format_bytes(size):>10}  in {plural(buffers, 'more buffer')}", "dim")])
    return lines


def _group(group: BufferGroup, whole: int, width: int) -> list[Line]:
    head = f"  {format_bytes(group.size):>10}  {percent(group.size, whole):>6}  "
    times = f"{group.count} × " if group.count > 1 else ""
    shape = shorten(times + visible(group.shape or ""), width - len(head) - len(group.role) - 2)
    lines: list[Line] = [[(head, ""), (shape, "cyan"), (f"  {group.role}", "")]]
    origin = _origin(group, width - len(head))
    if origin:
        lines.append([(" " * len(head) + origin, "dim")])
    return lines


def _origin(group: BufferGroup, room: int) -> str:
    """The line of a group, and as much of its operation as fits."""
    line = shorten_front(visible(group.source or ""), room)
    what = visible(group.op_name or ("" if line else group.label or ""))
    left = room - len(line) - 2 if line else room
    operation = shorten_front(what, left) if left > _NARROWEST else ""
    return "  ".join(filter(None, (line, operation)))


def _step(step: NextStep, width: int) -> list[Line]:
    lines = wrapped(step.text, width, "  - ")
    if step.command:
        lines.append([(f"      {visible(step.command)}", "cyan")])
    return lines
