"""Draws a `FitReport`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.text import Line, percent, shorten, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hlomem.report.data.fit import FitPlan, FitReport, FitRow

_EVERYTHING = "all"
_UNKNOWN = "-"
_CHEAPEST = "★"
_LEFT_OUT = ("plans", "FLOPs", "host", "price", "step", "sent", "fixed")
"""Columns that a narrow terminal does without, the first of them first, by how titles begin."""
_ROLES = 5
"""Roles of the cheapest row that are told."""


def draw_fit(report: FitReport, width: int) -> list[Line]:
    table = _narrowed(table_of(report), width)
    lines: list[Line] = [
        [(shorten(_title(report), width), "bold")],
        [(shorten(subtitle(report), width), "")],
        [],
        *_draw_table(table, width),
        *_draw_problems(report, width),
        *_draw_roles(report, width),
    ]
    return [*lines, *_draw_notes(report, table[0], width)]


def _title(report: FitReport) -> str:
    common = words_of(report.settings)
    return f"{visible(report.factory)}  {report.target}{'  ' if common else ''}{common}"


def subtitle(report: FitReport) -> str:
    """The question, and the memory there is where all rows have the same."""
    asked = f"largest {visible(report.over)}" if report.over else "what fits"
    sizes = {row.capacity for row in report.rows if row.capacity}
    if len(sizes) != 1:
        return f"{asked} in the memory of each target"
    label = "" if report.capacity is None else report.capacity.label
    has_own = all(row.target in ("", report.target) for row in report.rows)
    [size] = sizes
    return f"{asked} in {format_bytes(size)}{f' ({label})' if label and has_own else ''}"


def table_of(report: FitReport) -> list[list[str]]:
    """Titles, then the cells of each row that was planned; a column is left out if it is empty."""
    rows = [row for row in report.rows if not row.problem]
    columns = [(title, [_cell(title, row, report) for row in rows]) for title in _titles(report)]
    shown = [
        (title, cells)
        for title, cells in columns
        if title not in ("sent", "step", "host", "price") or set(cells) - {_UNKNOWN}
    ]
    titles = [title for title, _ in shown]
    return [titles, *map(list, zip(*(cells for _, cells in shown), strict=True))]


def _titles(report: FitReport) -> list[str]:
    over = visible(report.over)
    several = len({row.target for row in report.rows if row.target}) > 1
    asked = [over, "needs", "next", f"fixed + each {over}"] if over else ["fits", "needs"]
    memory = ["of"] if several else []
    return ["settings", *asked[:2], *memory, *asked[2:], *_MEASURES]


_MEASURES = ("FLOPs", "sent", "step", "host", "price", "plans")


def _cell(title: str, row: FitRow, report: FitReport) -> str:
    best = row.best
    if title == "settings":
        mark = f"{_CHEAPEST} " if row.is_cheapest else ""
        return f"{mark}{words_of(_own(row, report)) or _EVERYTHING}"
    if title == "needs":
        plan = best or (row.plans[0] if not report.over else None)
        return format_bytes(plan.size) if plan else _UNKNOWN
    if title == "of":
        return format_bytes(row.capacity)
    if title in _MEASURES:
        return _measure(title, row, best)
    return _answer(title, row, report)


def _answer(title: str, row: FitRow, report: FitReport) -> str:
    if title == "fits":
        return "yes" if row.best else "no"
    if title == "next":
        refused = next((plan for plan in row.plans if plan.value == row.smallest_refused), None)
        return f"{refused.value}: {format_bytes(refused.size)}" if refused else _UNKNOWN
    if title == visible(report.over):
        value = str(row.largest) if row.largest else "none"
        return value if row.is_proven else f"≥ {value}"
    return f"{format_bytes(max(0, row.base))} + {format_bytes(max(0, round(row.per_item)))}"


def _measure(title: str, row: FitRow, best: FitPlan | None) -> str:
    if title == "FLOPs":
        return f"×{row.work:.3f}" if row.work else _UNKNOWN
    if title == "plans":
        return str(len(row.plans))
    if title == "price":
        return _UNKNOWN if row.price is None else f"{row.price:.2f}/h"
    if best is None:
        return _UNKNOWN
    if title == "step":
        return _UNKNOWN if best.seconds is None else format_seconds(best.seconds)
    size = best.sent if title == "sent" else best.host
    return format_bytes(size) if size else _UNKNOWN


def format_seconds(seconds: float) -> str:
    """A modelled time with two digits: `1.2 s`, `85 ms`, `3.4 ms`."""
    value, unit = (seconds, "s") if seconds >= 1 else (seconds * 1000, "ms")
    return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"


def _own(row: FitRow, report: FitReport) -> dict[str, Any]:
    """The settings of a row, with its target where others have another and none is named."""
    targets = {other.target for other in report.rows if other.target}
    if len(targets) < 2 or "target" in row.settings:
        return row.settings
    rest = {name: value for name, value in row.settings.items() if name not in _MACHINE}
    return {"on": row.target, **rest}


_MACHINE = ("chip", "topology", "slices")


def words_of(settings: Mapping[str, Any]) -> str:
    """`remat=full donate=True`."""
    return " ".join(
        visible(str(value) if name in ("on", "target") else f"{name}={value}")
        for name, value in settings.items()
    )


def _narrowed(table: list[list[str]], width: int) -> list[list[str]]:
    """A table without the columns that a terminal has no room for."""
    for name in _LEFT_OUT:
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        if sum(widths[1:]) + 2 * len(widths) <= width:
            break
        kept = [number for number, title in enumerate(table[0]) if not title.startswith(name)]
        table = [[cells[number] for number in kept] for cells in table]
    return table


def _draw_table(table: Sequence[list[str]], width: int) -> list[Line]:
    """Cells below their titles; settings get a line of their own if they are too long."""
    widths = [max(len(cells[column]) for cells in table) for column in range(len(table[0]))]
    others = sum(widths[1:]) + 2 * len(widths)
    is_apart = widths[0] + others > width
    lines: list[Line] = []
    for number, cells in enumerate(table):
        is_cheapest = cells[0].startswith(_CHEAPEST)
        style = "dim" if number == 0 else "green" if is_cheapest else ""
        first = f"  {cells[0]:<{0 if is_apart else widths[0]}}"
        if is_apart:
            lines.append([(shorten(first, width), style or "bold")])
            first = "  "
        right = zip(cells[1:], widths[1:], strict=True)
        rest = "".join(f"  {cell:>{columns}}" for cell, columns in right)
        lines.append([(first, style), (rest, style)])
    return lines


def problems_of(report: FitReport) -> Iterator[tuple[str, str]]:
    """The settings of each row without a plan, and the reason."""
    for row in report.rows:
        if row.problem:
            yield words_of(row.settings) or _EVERYTHING, visible(row.problem)


def _draw_problems(report: FitReport, width: int) -> list[Line]:
    found = list(problems_of(report))
    lines: list[Line] = [[]] if found else []
    for words, problem in found:
        lines += wrapped(f"{words}: {problem}", width, "  ", "red")
    return lines


def _draw_roles(report: FitReport, width: int) -> list[Line]:
    """The needs of the cheapest row, or of the only one, and the line to paste."""
    row = report.cheapest or (report.rows[0] if len(report.rows) == 1 else None)
    best = None if row is None else row.best
    if row is None or best is None or not best.roles:
        return []
    roles = sorted(best.roles.items(), key=lambda item: (-item[1], item[0]))
    told = [f"{name} {percent(size, best.size)}" for name, size in roles[:_ROLES]]
    more = f", {len(roles) - _ROLES} more" if len(roles) > _ROLES else ""
    which = f"{_CHEAPEST} is the cheapest that fits; it needs" if row.is_cheapest else "it needs"
    lines: list[Line] = [[]]
    words = f"{which} {format_bytes(best.size)}: {', '.join(told)}{more}"
    lines += wrapped(words, width, "  ", "")
    if row.command:
        lines += [[], [(row.command, "bold")]]  # whole, to be copied
    return lines


_MEANING = {
    "FLOPs": "FLOPs are those of matrix products, with trip counts, relative to the fewest",
    "sent": "sent: bytes that one device sends to others in a step",
    "step": "step: the time of one, modelled",
    "host": "host: bytes in the memory of a host, of all its devices",
}


def _draw_notes(report: FitReport, titles: Sequence[str], width: int) -> list[Line]:
    spent = sum(plan.cpu_seconds for row in report.rows for plan in row.plans)
    made = [plan for row in report.rows for plan in row.plans]
    known = sum(plan.cpu_seconds == 0 for plan in made)
    again = f", {known} of them cached" if known else ""
    words = [f"{len(made)} plans by XLA{again}; {spent:.1f} s of CPU time in its compilers"]
    has_work = any(row.work for row in report.rows)
    words += [
        meaning
        for title, meaning in _MEANING.items()
        if title in titles and (title != "FLOPs" or has_work)
    ]
    lines: list[Line] = [[]]
    for note in (*words, *report.notes):
        lines += wrapped(note, width, "  ", "dim")
    return lines
