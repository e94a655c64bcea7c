"""The screen of a better order says what is saved, what is left, and how that is known."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hlomem.report.data.improvement import (
    ComputationOrder,
    ComputedAgain,
    ImprovementReport,
    Verdict,
)
from hlomem.report.screens.improvement_text import draw_improvement
from hlomem.report.screens.text import plain

ORDER = ComputationOrder(
    name="main", instructions=9, given_peak=2 << 20, peak=1 << 20, method="search", proven=False
)
REPORT = ImprovementReport(
    name="f",
    backend="cpu",
    effort="default",
    before=2 << 20,
    after=1 << 20,
    bound=1 << 19,
    verdict="open",
    method="search",
    computations=(ORDER,),
)


def _screen(report: ImprovementReport) -> str:
    return " ".join(plain(draw_improvement(report, 80)).split())


@pytest.mark.parametrize(
    ("verdict", "bound", "said"),
    [
        ("open", 1 << 19, "every order needs 512.0 KiB at least; at most 50.0% more could be"),
        ("open", None, "not known for this program"),
        ("proven", 1 << 19, "proven: no order keeps less alive; packing aside, every"),
        ("at the bound", 1 << 20, "no order of these instructions needs less"),
    ],
)
def test_it_says_how_near_to_the_least_it_is(
    verdict: Verdict, bound: int | None, said: str
) -> None:
    screen = _screen(replace(REPORT, verdict=verdict, bound=bound))
    assert said in screen
    assert "temporaries 2.00 MiB → 1.00 MiB -50.0%" in screen


def test_no_better_order_is_said_to_be_none() -> None:
    screen = _screen(replace(REPORT, after=REPORT.before, computations=()))
    assert "2.00 MiB of temporaries: no order was found that needs less" in screen
    assert "Computations in another order" not in screen


def test_the_first_computations_are_listed_and_all_notes() -> None:
    many = tuple(replace(ORDER, name=f"body.{number}") for number in range(40))
    screen = _screen(replace(REPORT, computations=many, notes=("rebuilt from the dump",)))
    listed = screen.count("body.")
    assert f"and {40 - listed} more (--json has all)" in screen
    assert "note rebuilt from the dump" in screen


AGAIN = ComputedAgain(
    ordered=1 << 20,
    instructions=3,
    stacks=2,
    flops=1,
    program_flops=100,
    time=-2,
    program_time=100,
)


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (
            "open",
            (
                "every order needs 512.0 KiB at least if nothing is recomputed; at most 50.0% "
                "more could be saved by orders alone"
            ),
        ),
        (
            "at the bound",
            "no order of these instructions needs less than 1.00 MiB if nothing is recomputed",
        ),
    ],
)
def test_what_runs_twice_is_told_apart_from_what_the_order_saves(
    verdict: Verdict, said: str
) -> None:
    report = replace(REPORT, verdict=verdict, after=1 << 18, again=AGAIN)
    screen = _screen(report)
    price = "+1.0% operations, -2.0% modelled time"
    assert f"3 instructions run twice, 2 stacked arrays of loops are gone: {price}" in screen
    assert "the order alone needs 1.00 MiB" in screen
    assert said in screen
