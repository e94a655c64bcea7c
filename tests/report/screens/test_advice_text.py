"""The screen of `hlomem advise`: as much as fits one, and what it says of the rest."""

from __future__ import annotations

from hlomem.report.data.advice import Advice, AdviceReport
from hlomem.report.screens.advice_text import TOP


def _report(count: int) -> AdviceReport:
    advice = tuple(
        Advice(
            rule="donate", title=f"donate argument {number}", least=1 << 20, most=1 << 20,
            method="re-planned", confidence="high", cost="nothing", how="donate_argnums=0",
            link="docs/advice.md",
        )
        for number in range(count)
    )  # fmt: skip
    return AdviceReport(name="jit_step", space="hbm", size=64 << 20, advice=advice)


def test_a_report_prints_as_its_screen_and_shows_as_one_line() -> None:
    report = _report(2)
    assert "donate argument 0" in str(report)
    assert repr(report) == "<AdviceReport 'jit_step': 64.00 MiB in hbm, 2 ways>"


def test_no_advice_is_said() -> None:
    assert "nothing found that would save more than 1%" in str(_report(0))


def test_advice_that_is_not_shown_is_counted() -> None:
    shown = str(_report(TOP + 3))
    assert f"donate argument {TOP - 1}" in shown
    assert f"donate argument {TOP}" not in shown
    assert "and 3 more (all in --json)" in shown
