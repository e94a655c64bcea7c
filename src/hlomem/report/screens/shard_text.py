"""Draws a `ShardReport`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.data.sharding.finding import WORDS
from hlomem.report.screens.advice_text import draw_code
from hlomem.report.screens.text import PIPED_WIDTH, Line, plain, plural, shorten, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.report.data.shard import ShardedArray, ShardReport
    from hlomem.report.data.sharding.collectives import Collective
    from hlomem.report.data.sharding.finding import ShardingFinding

_MAX_ARRAYS = 12
_MAX_COLLECTIVES = 8
_HEAD = 14
"""Columns before a name: the size, and blanks."""


def format_shard(report: ShardReport) -> str:
    return plain(draw_shard(report, PIPED_WIDTH))


def draw_shard(report: ShardReport, width: int) -> list[Line]:
    lines: list[Line] = [[(shorten(visible(report.name), width), "bold")]]
    where = f" in {visible(report.space)} memory"
    lines.append([(format_bytes(report.size), "bold"), (f" on each device{where}", "")])
    over = f"  {plural(report.device_count, 'device')}"
    over += f", mesh {visible(report.mesh)}" if report.mesh else ""
    lines += wrapped(over.strip(), width, "  ")
    for finding in report.findings:
        lines += [[], *_draw_finding(finding, width)]
    if report.mesh and not report.findings:
        lines.append([("  no finding", "green")])
    for title, rows in (
        ("arguments", report.arguments),
        ("results", report.results),
        ("other values at the peak", report.values),
    ):
        if rows:
            lines += [[], *_draw_arrays(title, rows, width)]
    if report.collectives:
        lines += [[], *_draw_collectives(report.collectives, width)]
    for note in report.notes:
        lines += [[], *wrapped(visible(note), width, "  ", "dim")]
    return lines


def _draw_finding(finding: ShardingFinding, width: int) -> list[Line]:
    saved = finding.promised if finding.got is None else finding.got
    is_promise = finding.got is None
    said = "would save, by the plan alone," if is_promise else "saved, when it was compiled,"
    lines: list[Line] = [
        [(f"  {format_bytes(saved):>10}  ", "bold"), (WORDS[finding.kind], "yellow")]
    ]
    indent = " " * _HEAD
    if finding.source:
        lines.append([(indent, ""), (shorten(visible(finding.source), width - _HEAD), "cyan")])
    if finding.chain:
        words = ", ".join([f"{link.what} at {_short(link.line)}" for link in finding.chain])
        lines += wrapped(visible(words), width, indent, "dim")
    lines += wrapped(visible(finding.title), width, indent)
    lines += wrapped(visible(finding.why), width, indent, "dim")
    lines += wrapped(f"the change below {said} {format_bytes(saved)}", width, indent, "dim")
    lines += draw_code(finding.how)
    if finding.note:
        lines += wrapped(visible(finding.note), width, indent, "dim")
    if finding.warning:
        lines += wrapped(f"XLA: {visible(finding.warning)}", width, indent, "dim")
    return lines


def _short(line: str) -> str:
    """`train.py:31` of a line's whole path."""
    return line.rpartition("/")[2]


def _draw_arrays(title: str, rows: Sequence[ShardedArray], width: int) -> list[Line]:
    total = format_bytes(sum(row.size for row in rows))
    lines: list[Line] = [[(f"  {total:>10}  ", "bold"), (f"{title}: {len(rows)}", "")]]
    for row in rows[:_MAX_ARRAYS]:
        lines += _draw_array(row, width)
    if others := rows[_MAX_ARRAYS:]:
        size = format_bytes(sum(row.size for row in others))
        lines.append([(f"  {size:>10}    {plural(len(others), 'smaller one')}", "dim")])
    return lines


def _draw_array(row: ShardedArray, width: int) -> list[Line]:
    head = f"  {format_bytes(row.size):>10}    "
    words = visible(f"{row.name}  {row.spec or 'sharding unknown'}")
    lines: list[Line] = [[(head, ""), (shorten(words, width - len(head)), "")]]
    if row.replication is not None and row.replication > 1:
        more = f"each part on {row.replication} devices"
        if row.split_size is not None and row.split_spec:
            more += f"; {format_bytes(row.split_size)} as {row.split_spec}"
        lines += wrapped(visible(more), width, " " * (len(head) + 2), "dim")
    return lines


def _draw_collectives(rows: Sequence[Collective], width: int) -> list[Line]:
    lines: list[Line] = [[(" " * _HEAD, ""), (f"collectives: {len(rows)}", "")]]
    for row in rows[:_MAX_COLLECTIVES]:
        head = f"  {format_bytes(row.size):>10}    "
        words = f"{row.name} over {', '.join(row.axes)}" if row.axes else row.name
        words += f" of {row.argument}" if row.argument else ""
        lines.append([(head, ""), (shorten(visible(words), width - len(head)), "")])
        lines += wrapped(visible(_stay(row)), width, " " * (len(head) + 2), "dim")
    if others := rows[_MAX_COLLECTIVES:]:
        lines.append([(" " * _HEAD + "  ", ""), (plural(len(others), "smaller one"), "dim")])
    return lines


def _stay(row: Collective) -> str:
    words = [] if row.start is None else [f"needed from step {row.start} to {row.end}"]
    words += ["kept for the backward pass"] if row.is_kept_for_backward else []
    words += [row.source] if row.source else []
    return "; ".join(words)
