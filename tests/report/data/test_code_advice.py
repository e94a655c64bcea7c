"""Advice on a program's source: the cheapest policy, by how much all miss, and lines to name."""

from __future__ import annotations

from msgspec.structs import replace

from hlomem.report.data.code_advice import advise_code, describe_fit
from hlomem.report.data.front import FrontPoint, sort_front
from tests.report.data.test_front import REST, point

MIB = 1 << 20
GIVEN = point(0, 100 * MIB, "as given", "given")
AGAIN = replace(
    point(10, 40 * MIB, "again: 9 instructions"), lines=("m.py:3 (tanh)",), kept=("m.py:2 (dot)",)
)
DOTS = replace(point(30, 60 * MIB, "dots_saveable", "policy"), code="policy = dots")
NOTHING = replace(point(250, 30 * MIB, "nothing_saveable", "policy"), code="policy = nothing")
POINTS = [GIVEN, AGAIN, DOTS, NOTHING]


def _first(points: list[FrontPoint], limit: int | None) -> tuple[str, str]:
    first = advise_code(sort_front(points, limit), limit)[0]
    assert first.is_tried
    return first.text, first.code


def test_the_cheapest_policy_that_fits_is_named_with_its_price() -> None:
    text, code = _first(POINTS, 60 * MIB + REST)
    assert code == "policy = dots"
    assert "+3.0% FLOPs, modelled time +6.0%" in text
    assert _first(POINTS, 50 * MIB)[1] == "policy = nothing"


def test_where_no_policy_fits_it_is_said_by_how_much_the_best_misses() -> None:
    text, code = _first(POINTS, 20 * MIB + REST)
    assert not code
    assert "None of the 2 policies" in text
    assert "nothing_saveable, needs 10.00 MiB more" in text


def test_without_a_limit_the_smallest_policy_stands_beside_ours() -> None:
    text, code = _first(POINTS, None)
    assert code == "policy = nothing"
    assert "hlomem found nothing as small" in text
    text, _ = _first([GIVEN, AGAIN, DOTS], None)
    assert "hlomem's cheapest of that size: +1.0% FLOPs" in text


def test_policies_that_need_no_less_are_not_advised() -> None:
    text, code = _first([GIVEN, replace(DOTS, temporaries=GIVEN.temporaries)], None)
    assert "needs less than the program as given" in text
    assert not code


def test_lines_are_candidates_and_said_to_be_untried() -> None:
    [advice] = advise_code(sort_front([GIVEN, AGAIN]), None)
    assert not advice.is_tried
    assert "rematerializes the values of these lines: m.py:3 (tanh)" in advice.text
    assert "not tried" in advice.text
    assert "save_only_these_names" in advice.code
    assert "m.py:2" in advice.code
    [bare] = advise_code(sort_front([GIVEN, replace(AGAIN, kept=())]), None)
    assert not bare.code
    assert advise_code(sort_front([GIVEN]), None) == ()


def test_the_verdict_on_a_number_says_what_fits_or_what_is_missing() -> None:
    limit = 50 * MIB + REST
    assert "needs 40.00 MiB, +1.0% FLOPs" in describe_fit(sort_front(POINTS, limit), limit)
    small = 29 * MIB + REST
    words = describe_fit(sort_front(POINTS, small), small)
    assert "none fits; the smallest needs 1.00 MiB more: nothing_saveable" in words
