"""The verdict on a program: whether it needs more than it may, and what has made it so.

In: a measurement, its limit, and what it was. Out: the sentences a test fails with, if any, and the
source line they are about. Where the program itself was kept, they are those of `hlomem diff`;
else what has grown is told by role and by line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.base.limits import parse_limit
from hlomem.base.sizes import format_bytes
from hlomem.report.data.diff import build_diff
from hlomem.report.screens.diff_text import draw_diff, signed
from hlomem.report.screens.text import PIPED_WIDTH, percent, plain, space_label

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.memory import MemoryView
    from hlomem.testing.measurement import Measurement

_TOP = 5


class Verdict(Struct, frozen=True, kw_only=True):
    """The things to say about a program."""

    problems: tuple[str, ...] = ()
    """The messages a test fails with, each of one or several lines."""
    note: str = ""
    """Why it was not compared, or what else is to know."""
    line: str = ""
    """The source line to look at, where one is known."""


def judge(
    now: Measurement,
    *,
    limit: int | None = None,
    before: Measurement | None = None,
    tolerance: str = "1%",
) -> Verdict:
    """A measurement against its limit and what it was."""
    problems = []
    if limit is not None and now.bytes > limit:
        problems.append("\n".join(_over(now, limit)))
    note = "" if before is None else _why_not_compared(now, before)
    has_grown = (
        before is not None
        and not note
        and now.bytes > before.bytes + parse_limit(tolerance, before.bytes)
    )
    if has_grown and before is not None:
        problems.append("\n".join(_grown(now, before)))
    line = _line_of(now, before if has_grown else None) if problems else ""
    return Verdict(problems=tuple(problems), note=note, line=line)


def explain_growth(before: MemoryView, after: MemoryView) -> str:
    """The changes between two compiles, as `hlomem diff` tells them."""
    return plain(draw_diff(build_diff(before, after), PIPED_WIDTH))


def _why_not_compared(now: Measurement, before: Measurement) -> str:
    if (now.target, now.space) != (before.target, before.space):
        return f"the baseline is of {before.target} ({before.space}): not compared"
    if now.versions != before.versions:
        return f"the baseline is of {_versions(before)}, this is {_versions(now)}: not compared"
    return ""


def _versions(measured: Measurement) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(measured.versions.items()))


def _over(now: Measurement, limit: int) -> Iterator[str]:
    missing = format_bytes(now.bytes - limit)
    space = space_label(now.space)
    yield (
        f"needs {format_bytes(now.bytes)} of {space} on {now.target},"
        f" the limit is {format_bytes(limit)}: {missing} too much"
    )
    for line, size in list(now.lines.items())[:_TOP]:
        yield f"  {format_bytes(size):>11}  {percent(size, now.peak):>6}  {line}"


def _grown(now: Measurement, before: Measurement) -> Iterator[str]:
    delta = now.bytes - before.bytes
    share = f"+{percent(delta, before.bytes)}" if before.bytes else "from nothing"
    yield (
        f"needs {format_bytes(now.bytes)} of {space_label(now.space)} on {now.target},"
        f" {signed(delta)} ({share}) against the baseline"
    )
    for name, size in _differences(now.roles, before.roles):
        yield f"  {signed(size):>11}  {name}"
    for name, size in _differences(now.lines, before.lines):
        yield f"  {signed(size):>11}  {name}"


def _differences(now: dict[str, int], before: dict[str, int]) -> list[tuple[str, int]]:
    """The largest changes, growth first."""
    deltas = {name: now.get(name, 0) - before.get(name, 0) for name in {*now, *before}}
    changed = [(name, size) for name, size in deltas.items() if size]
    return sorted(changed, key=lambda change: (-change[1], change[0]))[:_TOP]


def _line_of(now: Measurement, before: Measurement | None) -> str:
    """The line that has grown most, or the one that needs most."""
    grown = [] if before is None else _differences(now.lines, before.lines)
    if grown and grown[0][1] > 0:
        return grown[0][0]
    return max(now.lines, key=lambda line: now.lines[line], default="")
