"""A `FitReport` as one offline page without scripts: a chart and the table."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.fit_text import problems_of, subtitle, table_of, words_of

if TYPE_CHECKING:
    from hlomem.report.data.fit import FitReport, FitRow

_COLOURS = (
    "#4e79a7", "#f28e2b", "#e15759", "#59a14f", "#b07aa1", "#9c755f", "#d37295", "#76b7b2",
)  # fmt: skip
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 440, 90, 20, 20, 50
_TICKS = 5
STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1000px; padding: 1rem; }
svg { width: 100%; height: auto; } svg text { font-size: 13px; fill: currentColor; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .25rem .6rem; text-align: right; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; }
tr + tr { border-top: 1px solid #8884; }
i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .5em; }
p { color: #888; } .wide { overflow-x: auto; white-space: nowrap; } pre { white-space: pre-wrap; }
"""


def format_fit(report: FitReport) -> str:
    title = f"{visible(report.factory)}, {report.target}"
    common = words_of(report.settings)
    head = f"{subtitle(report)}{f', {common}' if common else ''}"
    notes = "".join(f"<p>{escape(visible(note))}</p>" for note in report.notes)
    chart = _draw(report) if report.over else ""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{escape(title)}</h1><h2>{escape(head)}</h2>{chart}{_table(report)}"
        f"{_problems(report)}{_roles(report)}{_command(report)}{notes}"
        "</html>\n"
    )


def _table(report: FitReport) -> str:
    titles, *rows = table_of(report)
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = []
    for number, cells in enumerate(rows):
        mark = f'<i style="background:{_colour(number)}"></i>'
        first, *rest = (escape(cell) for cell in cells)
        body.append(f"<tr><td>{mark}{first}</td>" + "".join(f"<td>{cell}</td>" for cell in rest))
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"


def _problems(report: FitReport) -> str:
    found = [f"<li>{escape(words)}: {escape(problem)}" for words, problem in problems_of(report)]
    return f"<h2>not planned</h2><ul>{''.join(found)}</ul>" if found else ""


def _roles(report: FitReport) -> str:
    """The needs of every row that fits, by role."""
    best = [(row, row.best) for row in report.rows if row.best is not None]
    names = list(dict.fromkeys(name for _, plan in best if plan for name in plan.roles))
    if not names:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr><td>{escape(words_of(row.settings)) or 'all'}</td>"
        + "".join(f"<td>{format_bytes(plan.roles.get(name, 0))}</td>" for name in names)
        for row, plan in best
        if plan is not None
    )
    table = f"<table><tr><th></th>{head}</tr>{body}</table>"
    return f'<h2>needs by role</h2><div class="wide">{table}</div>'


def _command(report: FitReport) -> str:
    row = report.cheapest or report.rows[0]
    return f"<pre>{escape(visible(row.command))}</pre>" if row.command else ""


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


class _Scale:
    def __init__(self, report: FitReport) -> None:
        plans = [plan for row in report.rows for plan in row.plans]
        self.most = max(plan.value for plan in plans)
        self.limits = sorted({row.capacity for row in report.rows if row.capacity})
        shown = [plan.size for plan in plans if plan.size <= 2 * self.limits[-1]]
        self.highest = round(1.08 * max([self.limits[-1], *shown]))

    def x(self, value: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * value / self.most, 1)

    def y(self, size: float) -> float:
        part = min(1.0, size / self.highest)
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * part, 1)


def _draw(report: FitReport) -> str:
    scale = _Scale(report)
    parts = [_axes(scale, visible(report.over))]
    rows = [row for row in report.rows if row.plans]
    parts += [_curve(row, scale, _colour(number)) for number, row in enumerate(rows)]
    parts += [_limit(scale.y(size), size, place) for place, size in enumerate(scale.limits)]
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'


def _limit(y: float, size: int, place: int) -> str:
    """A line at what a device has; names of neighbours stand next to one another."""
    return (
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="currentColor"'
        f' stroke-dasharray="6 4"/><text x="{_LEFT + 6 + 84 * place}" y="{y - 6}">'
        f"{escape(format_bytes(size))}</text>"
    )


def _axes(scale: _Scale, over: str) -> str:
    bottom = _HEIGHT - _BOTTOM
    marks = []
    for tick in range(_TICKS + 1):
        size, value = scale.highest * tick / _TICKS, round(scale.most * tick / _TICKS)
        y, x, label = scale.y(size), scale.x(value), format_bytes(round(size))
        marks.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="#8883"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{label}</text>'
            f'<text x="{x}" y="{bottom + 20}" text-anchor="middle">{value}</text>'
        )
    name = f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 8}" text-anchor="end">{escape(over)}</text>'
    return "".join(marks) + name


def _curve(row: FitRow, scale: _Scale, colour: str) -> str:
    """The plans of a row; filled circles fit."""
    plans = sorted(row.plans, key=lambda plan: plan.value)
    points = " ".join(f"{scale.x(plan.value)},{scale.y(plan.size)}" for plan in plans)
    name = escape(words_of(row.settings))
    circles = "".join(
        f'<circle cx="{scale.x(plan.value)}" cy="{scale.y(plan.size)}" r="4" stroke="{colour}"'
        f' fill="{colour if plan.fits else "none"}"><title>{name} {plan.value}:'
        f" {format_bytes(plan.size)}</title></circle>"
        for plan in plans
    )
    return f'<polyline points="{points}" fill="none" stroke="{colour}"/>{circles}'
