"""Ratios of measured and modelled time, by family."""

from __future__ import annotations

from tools.compare_clock import Pair, report, whole_seconds


def test_a_program_takes_what_a_call_of_nothing_does_not() -> None:
    assert whole_seconds({"least": 5e-5, "sustained": 9e-5}, 2e-5) == 5e-5 - 2e-5
    assert whole_seconds({"least": 5e-5, "sustained": 1e-5}, 2e-5) == 1e-5


def test_families_are_told_apart_and_the_worst_cases_named() -> None:
    pairs = [Pair("sort", f"s{place}", 2.0 * place, place) for place in range(1, 5)]
    pairs += [Pair("scatter", "near", 1.0, 1.0), Pair("scatter", "far", 1.0, 8.0)]
    lines = list(report("programs", pairs, worst=1))
    assert lines[1].split() == ["sort", "4", "2.00", "2.00", "2.00", "2.00", "1.000"]
    assert [line.split()[-1] for line in lines if " us, " in line] == ["s1", "far"]
    assert lines[3].split()[:2] == ["all", "6"]


def test_nothing_measured_is_an_empty_table() -> None:
    assert len(list(report("programs", [], worst=1))) == 1
