"""Memory against operations: points are planned, and a compiler's word replaces a plan."""

from __future__ import annotations

from hlomem.opt.budget import choose_cheapest, recompute_program
from hlomem.opt.order_search import Rules, improve_stages
from hlomem.opt.pareto import find_fit, find_front, with_front
from tests.opt.remat.scanned import SCANNED, scanned_stages

RULES = Rules("low")


def test_points_have_sizes_prices_and_the_lines_they_compute_again() -> None:
    stages = scanned_stages(SCANNED[-1])
    found = improve_stages("m", stages, RULES)
    report = with_front(found.report, find_front(found, RULES), None)
    given = next(its for its in report.front if its.kind == "given")
    assert given.total == stages.assignment.total_bytes
    again = [its for its in report.front if its.kind == "recomputed"]
    assert again
    for its in again:  # but for constants, a few bytes
        assert 0 <= its.total - its.temporaries - (given.total - given.temporaries) < 64
    assert any(its.lines for its in again)
    assert any(its.time for its in again)


def test_where_a_compiler_is_asked_its_sizes_are_shown_of_the_front_alone() -> None:
    found = improve_stages("m", scanned_stages(SCANNED[-1]), RULES)
    plain = find_front(found, RULES)
    asked = find_front(found, RULES, lambda variant, _: 7 if variant is None else 5)
    assert {its.temporaries for its in asked if its.kind == "recomputed"} == {5}
    assert {its.temporaries for its in asked if its.kind != "recomputed"} == {7}
    count = sum(its.on_front and its.kind == "recomputed" for its in plain)
    assert sum(its.kind == "recomputed" for its in asked) == count
    rest_of = {its.name: its.total - its.temporaries for its in plain}
    assert all(its.total - its.temporaries == rest_of[its.name] for its in asked)


def test_for_a_number_the_point_is_there_that_the_pass_would_take() -> None:
    found = improve_stages("m", scanned_stages(SCANNED[-1]), RULES)
    plain = find_front(found, RULES)
    smallest = min(plain, key=lambda its: its.total)
    limit = (smallest.total + found.total) // 2
    fitted = find_fit(found, RULES, limit)
    assert fitted is not None
    assert fitted.total <= limit
    made = choose_cheapest(recompute_program(found, limit, RULES), limit)
    assert made is not None
    assert (fitted.temporaries, fitted.flops) == (made.temporaries, made.flops)
    assert fitted.name in {its.name for its in find_front(found, RULES, limit=limit)}
    assert find_fit(found, RULES, found.total) is None
