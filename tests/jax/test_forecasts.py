"""The largest value that will fit, foretold from programs XLA has planned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import hlomem
from hlomem.jax.compile.messages import Facts
from hlomem.jax.compile.parent import PlannedProgram
from hlomem.jax.fit_forecasts import Forecasts
from hlomem.jax.target_kinds import parse_target
from tests.places import GOLDENS

if TYPE_CHECKING:
    from collections.abc import Sequence

HOME = GOLDENS / "sizes" / "train_step"
SIZE = {size: hlomem.explain(HOME / str(size)).space.size for size in (2, 4, 8, 16)}
"""Bytes by XLA's plans."""


def _planned(size: int) -> PlannedProgram:
    facts = Facts(module_name="jit_step", flops=None, fingerprint=str(size))
    dump = hlomem.load(HOME / str(size))
    return PlannedProgram(dump, facts, parse_target("cpu"), "", False, 1.0, 1.0)


def _forecasts(cache: Path, sizes: Sequence[int], known: Sequence[int] = ()) -> Forecasts:
    made = Forecasts(cache)
    for size in sizes:
        if size not in known:
            made.add(str(size), _planned(size))
        made.note(size, str(size), SIZE[size])
    return made


def test_two_plans_of_one_program_predict_the_largest_value(tmp_path: Path) -> None:
    forecasts = _forecasts(tmp_path, [2, 4])
    assert forecasts.predict(SIZE[8], 1) == 8
    assert forecasts.predict(SIZE[8] - 1, 1) == 7
    assert forecasts.predict(SIZE[8] - 1, 4) == 4
    assert forecasts.predict(SIZE[2] // 2, 1) is None


def test_a_forecast_is_known_when_the_search_is_made_again(tmp_path: Path) -> None:
    assert _forecasts(tmp_path, [2, 4], known=[2, 4]).predict(SIZE[8], 1) is None
    assert _forecasts(tmp_path, [2, 4]).predict(SIZE[8], 1) == 8
    assert _forecasts(tmp_path, [2, 4], known=[2, 4]).predict(SIZE[8], 1) == 8


def test_nothing_is_foretold_by_programs_that_are_not_one(tmp_path: Path) -> None:
    assert _forecasts(tmp_path, [8, 16]).predict(10 * SIZE[16], 1) is None
    assert _forecasts(tmp_path, [8]).predict(10 * SIZE[16], 1) is None


def test_nor_by_those_that_do_not_tell_the_plan_nearest_to_the_limit(tmp_path: Path) -> None:
    forecasts = _forecasts(tmp_path, [2, 4, 16])
    assert forecasts.predict(SIZE[16], 1) is None
    assert forecasts.predict(SIZE[4], 1) == 4
    assert forecasts.has_told


def test_nor_by_plans_that_hlomem_does_not_make(tmp_path: Path) -> None:
    made = Forecasts(tmp_path)
    for size in (2, 4):
        made.add(str(size), _planned(size))
        made.note(size, str(size), SIZE[size] + 64)
    assert made.predict(SIZE[8], 1) is None
