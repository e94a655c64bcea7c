"""Draws a `Snapshot`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.data.lines import bare_op_name
from hlomem.report.data.names import short_program
from hlomem.report.screens.scoped_text import describe_use
from hlomem.report.screens.text import (
    Line,
    bar,
    curve,
    moment_words,
    percent,
    plural,
    shorten,
    shorten_front,
    space_label,
    wrapped,
)

if TYPE_CHECKING:
    from hlomem.report.data.branches import Branch
    from hlomem.report.data.peak import PrintedPeak, Snapshot, SnapshotRow
    from hlomem.report.data.timeline import Summit

_BAR = 8
_HEAD = 2 + 10 + 2 + 6 + 2 + _BAR + 2
"""Columns of a row before its text: margin, size, percentage and bar."""
_MAX_SUMMITS = 3
_TWIG = 0.005
"""Fraction of the whole below which a branch is not shown, unless there are few."""
_MIN_ADDED_UP = 2
FROM_THE_FRONT = frozenset({"line", "op", "scope"})
"""Keys that are shortened at the front."""


def draw_snapshot(alive: Snapshot, width: int) -> list[Line]:
    lines: list[Line] = [
        [(shorten(short_program(visible(alive.name)), width), "bold")],
        draw_needs(alive.space_size, alive.space),
        draw_moment(alive, width),
    ]
    method = "replayed from live ranges; shared bytes count once"
    uses = () if alive.scoped is None else (describe_use(alive.scoped),)
    for note in (method, *uses, *alive.caveats):
        lines += wrapped(note, width, "  ", "dim")
    lines.append(draw_outline(alive))
    lines += draw_near_peaks(alive.near_peaks, alive.peak_size, width)
    lines.append([])
    if alive.branches:
        lines += _draw_branches(alive.branches, alive.size, width)
    else:
        for row in alive.rows:
            lines += draw_row(row, alive.size, alive.by, width)
        lines += draw_rest(alive)
    if alive.printed is not None and alive.printed.reasons:
        lines += [[], *draw_printed(alive.printed, alive.size, width)]
    return lines


def draw_needs(size: int, space: str) -> Line:
    return [("Needs ", ""), (format_bytes(size), "bold"), (f" of {space_label(space)}", "")]


def draw_moment(alive: Snapshot, width: int) -> Line:
    at = moment_words(alive.step, alive.steps, alive.instruction, alive.op_name, alive.source)
    what = "Peak " if alive.size == alive.peak_size else "In use "
    size = format_bytes(alive.size)
    rest = f" at {at}"
    return [(what, ""), (size, "bold"), (shorten(rest, width - len(what) - len(size)), "")]


def draw_rest(alive: Snapshot) -> list[Line]:
    if not alive.rest_count:
        return []
    share = percent(alive.rest_size, alive.size)
    what = "buffer" if alive.by == "buffer" else "group"
    return [
        [
            (f"  {format_bytes(alive.rest_size):>10}  {share:>6}  ", ""),
            (f"in {plural(alive.rest_groups, f'smaller {what}')}", "dim"),
        ]
    ]


def _draw_branches(
    branches: tuple[Branch, ...], whole: int, width: int, level: int = 0
) -> list[Line]:
    """A tree with subtotals; small branches are added up."""
    shown = [branch for branch in branches if branch.size >= _TWIG * whole]
    if len(branches) - len(shown) < _MIN_ADDED_UP:
        shown = list(branches)
    lines: list[Line] = []
    for branch in shown:
        head = f"  {format_bytes(branch.size):>10}  {percent(branch.size, whole):>6}  "
        indent = "  " * level
        note = f"  {branch.merged} of them" if branch.merged > 1 else ""
        name = shorten(visible(branch.key), width - len(head) - len(indent) - len(note))
        style = "bold" if level == 0 else ""
        lines.append([(head + indent, ""), (name, style), (note, "dim")])
        lines += _draw_branches(branch.children, whole, width, level + 1)
    if rest := branches[len(shown) :]:
        size = sum(branch.size for branch in rest)
        head = f"  {format_bytes(size):>10}  {percent(size, whole):>6}  "
        lines.append([(f"{head}{'  ' * level}in {len(rest)} smaller", "dim")])
    return lines


def draw_outline(alive: Snapshot) -> Line:
    return [("  ", ""), (curve(alive.outline, alive.peak_size), "green"), ("  over time", "dim")]


def draw_near_peaks(summits: tuple[Summit, ...], peak_size: int, width: int) -> list[Line]:
    """The other summits, which bound the gain of removing the peak."""
    lines: list[Line] = []
    for summit in summits[:_MAX_SUMMITS]:
        size = f"  {format_bytes(summit.size):>10}  {percent(summit.size, peak_size):>6}  "
        where = visible(summit.instruction or "the end")
        at = f"also at instruction {summit.step}, "
        lines.append([(size + at + shorten(where, width - len(size) - len(at)), "yellow")])
    if len(summits) > _MAX_SUMMITS:
        rest = f"and {plural(len(summits) - _MAX_SUMMITS, 'more summit')} of 90 % or more"
        lines.append([(" " * 22 + rest, "yellow")])
    return lines


def draw_row(row: SnapshotRow, whole: int, by: str, width: int) -> list[Line]:
    head = f"  {format_bytes(row.size):>10}  {percent(row.size, whole):>6}  "
    cells = width - _HEAD
    first: Line = [(head, ""), (bar(row.size, whole, _BAR) + "  ", "green")]
    below = " " * _HEAD
    if by == "buffer":
        name, shape = visible(row.largest), visible(row.shape)
        if len(name) + 2 + len(shape) > cells and shape[:1] != "(":
            shape = shape.partition("{")[0]  # rather drop the layout than shorten the shape
        named = shorten(name, max(cells // 2, cells - 2 - len(shape)))
        first += [(named, "bold"), ("  " + shorten(shape, cells - 2 - len(named)), "cyan")]
        return [first, [(below + _origin(row, cells), "dim")]]
    cut = shorten_front if by in FROM_THE_FRONT else shorten
    first.append((cut(visible(row.key), cells), "bold"))
    if by == "role":
        return [first]
    more = f" and {row.count - 1} more" if row.count > 1 else ""
    words = shorten(visible(row.largest), cells - len(more)) + more
    for text in (row.role, row.moved, visible(row.shape)):
        if text and len(words) + len(text) + 2 <= cells:
            words += f"  {text}"
    return [first, [(below + words, "dim")]]


def draw_printed(printed: PrintedPeak, size: int, width: int) -> list[Line]:
    lines: list[Line] = [
        [
            (f"  {format_bytes(printed.size):>10}  ", "bold"),
            (shorten(f"XLA's own list at the peak, instruction {printed.step}", width - 14), ""),
        ]
    ]
    for reason in printed.reasons:
        sign = "+" if reason.size > 0 else "-"
        head = f"  {sign + format_bytes(abs(reason.size)):>10}  "
        lines += wrapped(reason.why, width, head, "dim")
    return [*lines, [(f"  {format_bytes(size):>10}  ", "bold"), ("the peak above", "")]]


def _origin(row: SnapshotRow, columns: int) -> str:
    words = row.role
    if row.moved and len(words) + len(row.moved) + 2 <= columns // 2:
        words += f", {row.moved}"
    for text in (row.source, bare_op_name(row.op_name or "")):
        room = columns - len(words) - 2
        if text and room > 8:
            words += "  " + shorten_front(visible(text), room)
    return words
