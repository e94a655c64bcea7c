"""Ratios of measured and modelled time, by family."""

from __future__ import annotations

import pytest

from hlomem import hlo
from tools.compare_clock import BETWEEN, Pair, is_told, report, whole_seconds

BODY = """HloModule m, is_scheduled=true

%body {
  %s = (f32[8]) parameter(0)
  ROOT %t = (f32[8]) copy(%s)
}

%condition {
  %u = (f32[8]) parameter(0)
  ROOT %c = pred[] constant(true)
}

ENTRY %e {
  %p = (f32[8]) parameter(0)
  ROOT %w = (f32[8]) while(%p), condition=%condition, body=%body, CONFIG
}
"""
LOOP = hlo.parse(BODY.replace("CONFIG", 'backend_config={"known_trip_count":{"n":"7"}}'))
STRAIGHT = hlo.parse("HloModule m\n\nENTRY %e {\n  ROOT %p = f32[8] parameter(0)\n}\n")
ROW = {"sustained": 4e-5, "runs": 2, "kernels": {"a": [2e-6, 2], "b": [4e-6, 4]}}


def test_a_program_takes_its_kernels_where_the_host_takes_longer_to_start_it() -> None:
    assert whole_seconds(ROW, STRAIGHT) == pytest.approx(3e-6 + 3 * BETWEEN)
    assert whole_seconds(ROW, LOOP) == 4e-5
    assert whole_seconds(ROW | {"sustained": 1e-6}, STRAIGHT) == 1e-6
    assert whole_seconds({"sustained": 4e-5}, STRAIGHT) == 4e-5


def test_loops_whose_passes_nothing_tells_are_known() -> None:
    assert is_told(LOOP)
    assert is_told(STRAIGHT)
    assert not is_told(hlo.parse(BODY.replace(", CONFIG", "")))


def test_families_are_told_apart_and_the_worst_cases_named() -> None:
    pairs = [Pair("sort", f"s{place}", 2.0 * place, place) for place in range(1, 5)]
    pairs += [Pair("scatter", "near", 1.0, 1.0), Pair("scatter", "far", 1.0, 8.0)]
    lines = list(report("programs", pairs, worst=1))
    assert lines[1].split() == ["sort", "4", "2.00", "2.00", "2.00", "2.00", "1.000"]
    assert [line.split()[-1] for line in lines if " us, " in line] == ["s1", "far"]
    assert lines[3].split()[:2] == ["all", "6"]


def test_nothing_measured_is_an_empty_table() -> None:
    assert len(list(report("programs", [], worst=1))) == 1
