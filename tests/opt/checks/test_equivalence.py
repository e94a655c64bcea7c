"""The judge of loops lets pass what computes the same, and refuses all else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from hlomem import hlo
from hlomem.base.errors import HlomemError
from hlomem.hlo.text.printer import format_module
from hlomem.opt.candidate import Program
from hlomem.opt.checks import execution
from hlomem.opt.checks.equivalence import find_meaning_problems
from hlomem.opt.goal import Front, Rules
from hlomem.opt.strategies import propose_priced
from tests.opt.remat.scanned import ALL, HANDED, SCANNED, name_of, scanned_stages
from tools.spoiling import spoil, spoil_results

_WRONG = 8
"""Edits of each program; `tools.check_recompute` makes many more."""


def _edited(path: Path) -> tuple[hlo.HloModule, str]:
    stages = scanned_stages(path)
    variant = next(propose_priced(Program(stages, Rules()).start(), Front(64)))
    assert variant.changes[0].kind == "loops"
    return stages.module, format_module(variant.changes[0].module)


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_a_program_means_what_it_means(path: Path) -> None:
    module = scanned_stages(path).module
    assert find_meaning_problems(module, module) == []


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_wrong_edits_are_refused(path: Path) -> None:
    _refuse(path, spoil)


@pytest.mark.parametrize("path", HANDED, ids=name_of)
def test_fusions_with_wrong_results_are_refused(path: Path) -> None:
    _refuse(path, spoil_results)


def _refuse(path: Path, spoil: Callable[[str, Random], str | None]) -> None:
    given, text = _edited(path)
    right = hlo.parse(text)
    assert find_meaning_problems(given, right) == []
    chance = Random(5)  # noqa: S311 - no secrets
    refused = 0
    for _ in range(_WRONG):
        wrong = spoil(text, chance)
        assert wrong is not None
        try:
            edited = hlo.parse(wrong)
            edited.validate()
        except HlomemError:
            refused += 1
            continue
        problems = find_meaning_problems(given, edited)
        # Against the right edit, too: what nobody reads may change without harm.
        assert problems or not find_meaning_problems(right, edited)
        refused += bool(problems)
    assert refused > _WRONG // 2


@pytest.mark.parametrize("number", [1, -1])
def test_a_slice_of_another_iteration_is_refused(number: int) -> None:
    given, text = _edited(SCANNED[0])
    pattern = re.compile(r"(%constant\.remat\d* = s32\[\] constant\()(\d+)(\))")
    places = [found for found in pattern.finditer(text) if int(found[2]) > 1]
    assert places
    for found in places:
        wrong = f"{found[1]}{int(found[2]) + number}{found[3]}"
        changed = text[: found.start()] + wrong + text[found.end() :]
        assert find_meaning_problems(given, hlo.parse(changed))


def test_a_program_too_long_to_go_through_is_not_let_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given, text = _edited(SCANNED[0])
    monkeypatch.setattr(execution, "MAX_OPERATIONS", 100)
    [problem] = find_meaning_problems(given, hlo.parse(text))
    assert "too many iterations" in problem
