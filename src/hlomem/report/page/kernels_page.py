"""A `KernelReport` as one offline page without scripts: a picture of each grid, and the table."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.page.fit_page import STYLE
from hlomem.report.screens.fit_text import words_of
from hlomem.report.screens.kernels_text import cell_of, grid_of, table_of

if TYPE_CHECKING:
    from hlomem.report.data.kernels import KernelReport, KernelRow

_CELL, _ROW, _LEFT, _TOP = 90, 34, 260, 40
_FITS, _NOT, _UNKNOWN = "#59a14f", "#e15759", "#bab0ac"


def format_kernels(report: KernelReport) -> str:
    title = f"{visible(report.subject)}, {', '.join(report.targets)}"
    pictures = [
        f"<h2>{escape(target)}</h2>{_picture(report, target)}"
        for target in report.targets
        if report.over
    ]
    common = words_of(report.settings)
    head = f"<p>{escape(common)}</p>" if common else ""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{escape(title)}</h1>{head}{''.join(pictures)}{_table(report)}</html>\n"
    )


def _table(report: KernelReport) -> str:
    titles, *rows = table_of(report)
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for cells in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _picture(report: KernelReport, target: str) -> str:
    """A cell for each setting: green fits, red does not; the fuller, the darker."""
    values, groups = grid_of(report, target)
    last = list(report.over)[-1]
    width, height = _LEFT + _CELL * len(values), _TOP + _ROW * len(groups)
    parts = [f'<text x="8" y="{_TOP - 14}">{escape(visible(last))}</text>']
    for column, value in enumerate(values):
        x = _LEFT + _CELL * (column + 0.5)
        label = escape(visible(value))
        parts.append(f'<text x="{x}" y="{_TOP - 14}" text-anchor="middle">{label}</text>')
    for number, (key, cells) in enumerate(groups.items()):
        y = _TOP + _ROW * number
        parts.append(f'<text x="8" y="{y + 22}">{escape(key)}</text>')
        for column, value in enumerate(values):
            parts.append(_cell(cells.get(value), _LEFT + _CELL * column, y))
    return f'<svg viewBox="0 0 {width} {height}" role="img">{"".join(parts)}</svg>'


def _cell(row: KernelRow | None, x: int, y: int) -> str:
    words, _ = cell_of(row)
    use = row.fullest if row is not None else None
    fits = row.fits if row is not None else None
    colour = _UNKNOWN if fits is None else _FITS if fits else _NOT
    size = use.used or use.bound if use is not None else 0
    fill = min(1.0, 0.35 + 0.65 * size / max(1, use.limit)) if use is not None else 0.35
    title = ""
    if row is not None and use is not None:
        of = f"{format_bytes(size)} of {format_bytes(use.limit)}"
        about = f"{words_of(row.settings)}: {visible(use.name)}, {of}, {row.how}"
        title = f"<title>{escape(about)}</title>"
    return (
        f'<g>{title}<rect x="{x}" y="{y}" width="{_CELL - 2}" height="{_ROW - 2}" rx="3"'
        f' fill="{colour}" fill-opacity="{fill:.2f}"/>'
        f'<text x="{x + _CELL / 2}" y="{y + 21}" text-anchor="middle">{escape(words)}</text></g>'
    )
