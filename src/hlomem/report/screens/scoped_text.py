"""Draws scoped memory: kernels and fusions next to the VMEM they may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.data.names import short_line, short_operation
from hlomem.report.data.scoped import SHARED_MEMORY
from hlomem.report.screens.text import Line, bar, percent, shorten, space_label, wrapped
from hlomem.view.scoped import LIMIT_FLAG

if TYPE_CHECKING:
    from hlomem.report.data.scoped import ScopedMemory, ScopedRow

TOP = 3
_BAR = 8


def draw_scoped(scoped: ScopedMemory, width: int) -> list[Line]:
    """The largest, and the part of the limit that the flag reserves for nothing."""
    space = space_label(scoped.rows[0].space)
    title = f"{space[0].upper()}{space[1:]} of kernels and fusions"
    lines: list[Line] = [[(title, "bold"), (", largest first", "dim")]]
    lines += wrapped(_limit(scoped), width, "  ", "dim")
    for row in scoped.rows[:TOP]:
        lines.append(_row(row, scoped.rows[0].used, width))
    if rest := scoped.rows[TOP:]:
        lines.append([(f"  {len(rest)} more, at most {format_bytes(rest[0].used)} each", "dim")])
    if scoped.reserved_beyond:
        size = format_bytes(scoped.reserved_beyond)
        words = f"{scoped.limit_from} reserves {size} more than any of them uses, which"
        words += " memory-space assignment could have"
        lines += wrapped(words, width, "  ", "yellow")
    return lines


def _limit(scoped: ScopedMemory) -> str:
    if scoped.limit is None:
        return "the limit is not known: the dump does not name the chip"
    is_flag = scoped.limit_from == LIMIT_FLAG
    origin = f"by {LIMIT_FLAG}" if is_flag else f"the default of {scoped.limit_from}"
    if scoped.rows[0].space == SHARED_MEMORY:
        origin = scoped.limit_from
    return f"each may use {format_bytes(scoped.limit)}, {origin}"


def describe_use(row: ScopedRow) -> str:
    """`its kernel uses 4.34 MiB of 16.0 MiB VMEM while it runs`."""
    what = "its kernel" if row.kind == "kernel" else f"its {visible(row.kind)}"
    of = f" of {format_bytes(row.limit)}" if row.limit is not None else " of"
    return f"{what} uses {format_bytes(row.used)}{of} {space_label(row.space)} while it runs"


def _row(row: ScopedRow, most: int, width: int) -> Line:
    share = percent(row.used, row.limit) if row.limit else ""
    whole = row.limit or most
    head = f"  {format_bytes(row.used):>10}  {share:>6}  "
    where = f" ({short_line(visible(row.source))})" if row.source else ""
    what = visible(row.name)
    if row.kind != "kernel" and row.op_name:
        what += f"  {short_operation(visible(row.op_name))}"
    own = " its own limit" if row.is_own_limit else ""
    words = shorten(f"  {what}{where}{own}", width - len(head) - _BAR)
    return [(head, "cyan"), (bar(row.used, whole, _BAR), "green"), (words, "")]
