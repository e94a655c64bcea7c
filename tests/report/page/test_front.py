"""Memory against operations as the page gets it."""

from __future__ import annotations

from msgspec.structs import replace

from hlomem.report.data.front import sort_front
from hlomem.report.page.front import build_front
from tests.report.data.test_code_advice import GIVEN, MIB, POINTS
from tests.report.screens.test_improvement_text import REPORT


def _answer(limit: int | None) -> str:
    front = build_front(replace(REPORT, front=sort_front(POINTS, limit), limit=limit))
    assert front is not None
    return front.answer


def test_there_is_none_where_it_was_not_asked_for() -> None:
    assert build_front(REPORT) is None


def test_the_answer_says_what_the_smallest_costs_or_what_fits() -> None:
    assert _answer(None) == (
        "Temporaries from 100.0 MiB to 30.00 MiB: the smallest costs +25.0% FLOPs,"
        " modelled time +50.0%: nothing_saveable."
    )
    assert "the cheapest that fits needs 40.00 MiB" in _answer(50 * MIB)


def test_the_answer_says_so_where_nothing_is_smaller() -> None:
    front = build_front(replace(REPORT, front=sort_front([GIVEN])))
    assert front is not None
    assert front.answer == "Nothing was found below the 100.0 MiB of XLA's program."
