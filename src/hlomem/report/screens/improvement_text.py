"""Draws an `ImprovementReport`, with its table of memory against operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes, format_change
from hlomem.base.source import visible
from hlomem.report.data.code_advice import describe_fit
from hlomem.report.screens.text import (
    PIPED_WIDTH,
    Line,
    percent,
    plain,
    shorten,
    shorten_front,
    wrap,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.report.data.front import CodeAdvice, FrontPoint
    from hlomem.report.data.improvement import ComputationOrder, ImprovementReport


TOP = 8
_HEAD = f"  {'alive at most':>24}   instructions  name and method"


def format_improvement(improved: ImprovementReport) -> str:
    return plain(draw_improvement(improved, PIPED_WIDTH))


def draw_improvement(improved: ImprovementReport, width: int) -> list[Line]:
    lines: list[Line] = [
        [(shorten_front(visible(improved.name), width), "bold")],
        _saving(improved),
        [],
        *(wrapped(_again(improved), width, "remat   ") if improved.again else []),
        *wrapped(_bound(improved), width, "bound   "),
        *wrapped(f"{improved.method}; effort {improved.effort}", width, "found   "),
    ]
    if packing := _packing(improved):
        lines += wrapped(packing, width, "packing ")
    if improved.computations:
        lines += [[], [("Computations in another order", "bold")], [(_HEAD, "dim")]]
        lines += [[(_row(order, width), "")] for order in improved.computations[:TOP]]
    if len(improved.computations) > TOP:
        lines.append([(f"  and {len(improved.computations) - TOP} more (--json has all)", "dim")])
    if improved.front:
        lines += [[], *draw_front(improved.front, improved.limit, improved.advice, width)]
    if improved.notes:
        lines.append([])
    for note in improved.notes:
        lines += wrapped(note, width, "note ", "dim")
    return lines


def _saving(improved: ImprovementReport) -> Line:
    before, after = format_bytes(improved.before), format_bytes(improved.after)
    if not improved.saves:
        return [(f"{before} of temporaries: no order was found that needs less", "")]
    saved = f"-{percent(improved.saves, improved.before)}"
    return [(f"temporaries {before} → {after}  ", ""), (saved, "green")]


def _again(improved: ImprovementReport) -> str:
    again = improved.again
    if again is None:
        return ""
    parts = [f"{again.instructions} instructions run twice"] if again.instructions else []
    parts += [f"{again.stacks} stacked arrays of loops are gone"] if again.stacks else []
    flops = _signed(again.flops, again.program_flops)
    time = _signed(again.time, again.program_time)
    price = f"{flops} operations, {time} modelled time"
    return f"{', '.join(parts)}: {price}; the order alone needs {format_bytes(again.ordered)}"


def _signed(more: int, whole: int) -> str:
    return f"{'-' if more < 0 else '+'}{percent(abs(more), whole)}"


def _bound(improved: ImprovementReport) -> str:
    """The sentence on the lower bound of all orders, which recomputation may beat."""
    again = improved.again
    ordered = improved.after if again is None else again.ordered
    once = "" if again is None else " if nothing is recomputed"
    if improved.verdict == "at the bound":
        than = "" if again is None else f" than {format_bytes(ordered)}"
        return f"no order of these instructions needs less{than}{once}"
    known = "not known for this program"
    if improved.bound is not None:
        rest = percent(max(0, ordered - improved.bound), ordered)
        needed = f"every order needs {format_bytes(improved.bound)} at least{once}"
        by = "" if again is None else " by orders alone"
        known = f"{needed}; at most {rest} more could be saved{by}"
    if improved.verdict == "proven":
        return f"proven: no order keeps less alive; packing aside, {known}"
    return known


def _packing(improved: ImprovementReport) -> str:
    """The sentence on the best packing; empty if it was not searched for."""
    packing = improved.packing
    if packing is None:
        return ""
    given = f"the best needs {_tight(packing.before, packing.before_proven)} in XLA's order"
    this = "in this one" if improved.again is None else "of this program"
    found = f" and {_tight(packing.after, packing.after_proven)} {this}"
    both = given + (found if improved.saves else "")
    return f"{both}; XLA packs by its own rules, which cannot be changed"


def _tight(size: int, proven: bool) -> str:
    return f"{format_bytes(size)} ({'proven' if proven else 'the best found'})"


def _row(order: ComputationOrder, width: int) -> str:
    peaks = f"{format_bytes(order.given_peak)} → {format_bytes(order.peak)}"
    proven = ", proven" if order.proven else ""
    numbers = f"  {peaks:>24}   {order.instructions:>12}  "
    return numbers + shorten(f"{visible(order.name)}: {order.method}{proven}", width - len(numbers))


_MARGIN = 40
"""Columns before the name of a program."""


def draw_front(
    points: Sequence[FrontPoint], limit: int | None, advice: Sequence[CodeAdvice], width: int
) -> list[Line]:
    given = next(point for point in points if point.kind == "given")
    lines: list[Line] = [[("Memory against operations", "bold")], [(_front_head(limit), "dim")]]
    shown = [point for point in points if point.on_front or point.kind != "recomputed"]
    for point in shown:
        style = "green" if point.is_chosen else ""
        row = wrap(visible(point.name), width, _numbers(point, given, limit), " " * _MARGIN)
        lines += [[(line, style)] for line in row]
    if rest := len(points) - len(shown):
        lines.append([(f"  and {rest} more that are larger and costlier (--json has all)", "dim")])
    lines.append([("* no other is as cheap and as small; time is modelled", "dim")])
    if limit is not None:
        lines += wrapped(describe_fit(points, limit), width, "fit     ")
    for one in advice:
        lines += [[], *wrapped(one.text, width)]
        lines += [[(f"    {visible(line)}", "cyan")] for line in one.code.splitlines()]
    return lines


def _front_head(limit: int | None) -> str:
    second = "share" if limit is None else "in all"
    return f"  {'temporaries':>11} {second:>10} {'FLOPs':>7} {'time':>6}  program"


def _numbers(point: FrontPoint, given: FrontPoint, limit: int | None) -> str:
    share = f"{point.temporaries / max(given.temporaries, 1):.3f}"
    second = share if limit is None else format_bytes(point.total)
    more = format_change(point.flops, point.program_flops)
    longer = format_change(point.time, point.program_time)
    mark = "*" if point.on_front else " "
    size = format_bytes(point.temporaries)
    return f"{mark} {size:>11} {second:>10} {more:>7} {longer:>6}  "
