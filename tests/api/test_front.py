"""Memory against operations: points are planned, and a compiler's word replaces a plan."""

from __future__ import annotations

from hlomem.api.front import find_points, with_front
from hlomem.api.improve import BetterOrder, build_report
from hlomem.opt.candidate import Program, choose_cheapest, start_text
from hlomem.opt.goal import Rules
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.search import OURS, find_fits, find_front, find_order
from tests.opt.remat.scanned import SCANNED, scanned_stages


def _found() -> BetterOrder:
    ordered = find_order(Program(scanned_stages(SCANNED[-1]), Rules("low")))
    return BetterOrder(build_report("m", ordered), ordered)


def test_points_have_sizes_prices_and_the_lines_they_compute_again() -> None:
    found = _found()
    report = with_front(found.report, find_points(found), None)
    given = next(its for its in report.front if its.kind == "given")
    assert given.total == found.stages.assignment.total_bytes
    again = [its for its in report.front if its.kind == "recomputed"]
    assert again
    for its in again:  # but for constants, a few bytes
        assert 0 <= its.total - its.temporaries - (given.total - given.temporaries) < 64
    assert any(its.lines for its in again)
    assert any(its.time for its in again)


def test_where_a_compiler_is_asked_its_sizes_are_shown_of_the_front_alone() -> None:
    found = _found()
    plain = find_points(found)
    asked = find_points(found, None, OURS._replace(plan=lambda _: 5), 7)
    assert {its.temporaries for its in asked if its.kind != "given"} == {5}
    assert {its.temporaries for its in asked if its.kind == "given"} == {7}
    count = sum(its.on_front and its.kind == "recomputed" for its in plain)
    assert sum(its.kind == "recomputed" for its in asked) == count
    rest_of = {its.name: its.total - its.temporaries for its in plain}
    assert all(its.total - its.temporaries == rest_of[its.name] for its in asked)


def test_for_a_number_the_point_is_there_that_the_pass_would_take() -> None:
    found = _found()
    plain = find_points(found)
    smallest = min(plain, key=lambda its: its.total)
    limit = (smallest.total + found.ordered.total) // 2
    [fitted] = [its for its in find_points(_found(), limit) if "for this budget" in its.name]
    assert fitted.total <= limit
    again = _found().ordered
    find_front(again)  # what is planned here is not counted again
    made = choose_cheapest(find_fits(again, limit), limit)
    assert made is not None
    assert (fitted.temporaries, fitted.flops) == (made.temporaries, made.flops)
    enough = find_points(found, found.ordered.total)
    assert not any("for this budget" in its.name for its in enough)


def test_budgets_are_met_by_the_plans_of_the_compiler() -> None:
    found = _found()
    more = 4096

    def plan(data: bytes) -> int:
        stages = start_text(OURS.read(data), found.stages.options)
        return temporary_bytes(stages) + more

    before = found.ordered.given.start().temporaries + more
    asked = find_points(found, None, OURS._replace(plan=plan), before, shares=(0.75, 0.5))
    for share in (0.75, 0.5):
        [its] = [its for its in asked if its.name.endswith(f", for {share:.0%}")]
        assert more < its.temporaries <= share * before
