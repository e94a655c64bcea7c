"""Branches that differ are gone through, each by itself."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.opt.checks.equivalence import find_meaning_problems

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
