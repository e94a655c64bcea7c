"""The screen of memory against operations."""

from __future__ import annotations

from msgspec.structs import replace

from hlomem.report.data.code_advice import advise_code
from hlomem.report.data.front import sort_front
from hlomem.report.screens.improvement_text import draw_front
from hlomem.report.screens.text import plain
from tests.report.data.test_code_advice import DOTS, MIB, POINTS


def _screen(limit: int | None) -> str:
    long = replace(DOTS, name="dots_with_no_batch_dims_saveable, around everything")
    points = sort_front([*POINTS, long], limit)
    return plain(draw_front(points, limit, advise_code(points, limit), 80))


def test_every_program_is_a_row_and_no_line_is_too_long() -> None:
    screen = _screen(None)
    assert max(map(len, screen.splitlines())) <= 80
    assert "*   40.00 MiB      0.400   +1.0%  +2.0%  again: 9 instructions" in screen
    assert "around everything" in screen


def test_what_is_larger_and_costlier_is_counted() -> None:
    worse = replace(POINTS[1], flops=900, name="again: 99 instructions")
    screen = plain(draw_front(sort_front([*POINTS, worse]), None, (), 80))
    assert "99 instructions" not in screen
    assert "and 1 more that are larger and costlier (--json has all)" in screen


def test_with_a_limit_all_bytes_are_shown_and_the_verdict() -> None:
    screen = _screen(50 * MIB)
    assert "in all" in screen
    assert "the cheapest that fits needs 40.00 MiB" in screen
