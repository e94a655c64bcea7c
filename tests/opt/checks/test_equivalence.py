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
from hlomem.opt.checks import equivalence as meaning
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
    monkeypatch.setattr(meaning, "MAX_OPERATIONS", 100)
    [problem] = find_meaning_problems(given, hlo.parse(text))
    assert "too many iterations" in problem


_CONVERTED = """HloModule m, is_scheduled=true

ENTRY %main (x: f32[8,128], i: s32[]) -> bf16[8,128] {
  %x = f32[8,128]{1,0:T(8,128)} parameter(0)
  %i = s32[] parameter(1)
  %zero = f32[] constant(0)
  %place = s32[] constant(1)
  %first = s32[] constant(0)
  %room = f32[2,8,128]{2,1,0:T(8,128)} broadcast(%zero), dimensions={}
  %part = f32[1,8,128]{2,1,0:T(8,128)} bitcast(%x)
  %stack = f32[2,8,128]{2,1,0:T(8,128)} dynamic-update-slice(%room, %part, %place, %first, %first)
  %slice = bf16[1,8,128]{2,1,0:T(8,128)(2,1)} dynamic-slice(TAKEN, %place, %first, %first), SIZES
  ROOT %result = bf16[8,128]{1,0:T(8,128)(2,1)} bitcast(%slice)
}
"""


def _converted(taken: str) -> hlo.HloModule:
    text = _CONVERTED.replace("SIZES", "dynamic_slice_sizes={1,8,128}")
    return hlo.parse(text.replace("TAKEN", taken))


@pytest.mark.parametrize(("taken", "problems"), [("%part", 0), ("%stack", 0), ("%room", 1)])
def test_a_slice_that_is_converted_is_the_value_that_was_stacked(taken: str, problems: int) -> None:
    given, edited = _converted("%stack"), _converted(taken)
    assert len(find_meaning_problems(given, edited)) == problems


_BRANCHES = """HloModule m, is_scheduled=true

%yes (a: f32[8]) -> (f32[8], f32[8]) {
  %a = f32[8]{0} parameter(0)
  %told = () custom-call(%a), custom_call_target="tell", custom_call_has_side_effect=true
  %a.1 = f32[8]{0} negate(%a)
  %a.2 = f32[8]{0} FIRST(%a)
  ROOT %a.3 = (f32[8]{0}, f32[8]{0}) tuple(%a.1, %a.2)
}

%no (b: f32[8]) -> (f32[8], f32[8]) {
  %b = f32[8]{0} parameter(0)
  SECOND
  ROOT %b.3 = (f32[8]{0}, f32[8]{0}) tuple(%b.1, %b.1)
}

ENTRY %main (x: f32[8], p: pred[], q: pred[]) -> (f32[8], f32[8]) {
  %x = f32[8]{0} parameter(0)
  %p = pred[] parameter(1)
  %q = pred[] parameter(2)
  ROOT %r = (f32[8]{0}, f32[8]{0}) conditional(WHICH, %x, %x), BODIES
}
"""
_TOLD = """%told.1 = () custom-call(%b), custom_call_target="tell", custom_call_has_side_effect=true
  %b.1 = f32[8]{0} abs(%b)"""


def _branches(
    first: str = "abs", second: str = "%b.1 = f32[8]{0} abs(%b)", which: str = "%p", back: int = 0
) -> hlo.HloModule:
    bodies = ("%yes", "%no")[:: -1 if back else 1]
    named = f"true_computation={bodies[0]}, false_computation={bodies[1]}"
    text = _BRANCHES.replace("FIRST", first).replace("SECOND", second)
    return hlo.parse(text.replace("WHICH", which).replace("BODIES", named))


def test_branches_that_compute_the_same_otherwise_are_let_pass() -> None:
    again = "%b.2 = f32[8]{0} copy(%b)\n  %b.1 = f32[8]{0} abs(%b.2)"
    assert find_meaning_problems(_branches(), _branches(second=again)) == []


@pytest.mark.parametrize(
    ("edited", "problems"),
    [
        (_branches(first="cosine"), ["result 1 is a different value"]),
        (_branches(back=1), None),
        (_branches(which="%q", second="%b.1 = f32[8]{0} negate(%b)"), None),
        (_branches(second=_TOLD), None),
    ],
    ids=["another value", "the other branch", "another decides", "another effect"],
)
def test_branches_that_do_not_are_refused(
    edited: hlo.HloModule, problems: list[str] | None
) -> None:
    found = find_meaning_problems(_branches(), edited)
    assert found
    assert problems is None or found == problems
