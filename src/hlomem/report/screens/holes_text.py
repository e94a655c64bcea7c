"""Draws `Holes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.data.names import short_program
from hlomem.report.screens.text import Line, percent, plural, shorten, space_label, wrap, wrapped

if TYPE_CHECKING:
    from hlomem.report.data.holes import Hole, HoledAllocation, Holes

_MAX_ALLOCATIONS = 3
_MAX_HOLES = 5
_MARGIN = " " * 14


def draw_holes(holes: Holes, width: int) -> list[Line]:
    lines: list[Line] = [[(shorten(short_program(visible(holes.name)), width), "bold")]]
    if not holes.allocations:
        return [*lines, [(f"no temporaries in {space_label(visible(holes.space))}", "")]]
    share = percent(holes.size, holes.space_size)
    whole = f"{format_bytes(holes.space_size)} of {space_label(visible(holes.space))}"
    size = format_bytes(holes.size)
    lines.append([("Fragmentation ", ""), (size, "bold"), (f", {share} of {whole}", "")])
    for allocation in holes.allocations[:_MAX_ALLOCATIONS]:
        lines += [[], *_draw_allocation(allocation, width)]
    if (rest := len(holes.allocations) - _MAX_ALLOCATIONS) > 0:
        lines += [[], [(f"  and {plural(rest, 'allocation')} more (all in --json)", "dim")]]
    return lines


def _draw_allocation(allocation: HoledAllocation, width: int) -> list[Line]:
    at = f"instruction {allocation.step}, {visible(allocation.instruction or 'the end')}"
    sizes = f"{format_bytes(allocation.size)}, at most {format_bytes(allocation.most_alive)} in use"
    head = f"allocation {allocation.index}: {sizes}, at {at}"
    lines = wrapped(head, width, "  ", rest=_MARGIN)
    for hole in allocation.holes[:_MAX_HOLES]:
        lines += _draw_hole(hole, width)
    if rest := allocation.holes[_MAX_HOLES:]:
        size = format_bytes(sum(hole.size for hole in rest))
        lines.append([(f"  {size:>10}  in {plural(len(rest), 'smaller hole')}", "dim")])
    return lines


def _draw_hole(hole: Hole, width: int) -> list[Line]:
    head = f"  {format_bytes(hole.size):>10}  "
    above = (
        f"below {hole.above}, alive from instruction {hole.above_start} to {hole.above_end}"
        if hole.above
        else "at the end"
    )
    lines = wrap(f"from byte {hole.offset}, {above}", width, head)
    if hole.before is not None:
        lines += wrap(f"until instruction {hole.before_end} {hole.before} was here", width, _MARGIN)
    if hole.after is not None:
        lines += wrap(f"from instruction {hole.after_start} {hole.after} will be", width, _MARGIN)
    return [[(lines[0], "")], *([(line, "dim")] for line in lines[1:])]
