"""The judge of loops, on programs small enough to be read."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.hlo.text.printer import format_module
from hlomem.opt.checks import Change, find_problems
from hlomem.opt.checks.equivalence import find_meaning_problems
from tests.opt.fixtures import edit, iter_fixtures

LOOP = """\
HloModule m, is_scheduled=true, replica_count=1

%condition (s: (s32[], f32[4,8])) -> pred[] {
  %s = (s32[], f32[4,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(4)
  ROOT %goes = pred[] compare(%i, %n), direction=LT
}

%body (t: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %t = (s32[], f32[4,8]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%t), index=0
  %w = f32[4,8]{1,0} get-tuple-element(%t), index=1
  %zero = s32[] constant(0)
  %one = s32[] constant(1)
  %row = f32[1,8]{1,0} dynamic-slice(%w, %j, %zero), dynamic_slice_sizes={1,8}
  %made = f32[1,8]{1,0} negate(%row)
  %put = f32[4,8]{1,0} dynamic-update-slice(%w, %made, %j, %zero)
  %next = s32[] add(%j, %one)
  ROOT %u = (s32[], f32[4,8]{1,0}) tuple(%next, %put)
}

ENTRY %main (p: f32[4,8], q: f32[8]) -> (f32[4,8], f32[8]) {
  %p = f32[4,8]{1,0} parameter(0)
  %q = f32[8]{0} parameter(1)
  %start = s32[] constant(0)
  %state = (s32[], f32[4,8]{1,0}) tuple(%start, %p)
  %loop = (s32[], f32[4,8]{1,0}) while(%state), condition=%condition, body=%body
  %all = f32[4,8]{1,0} get-tuple-element(%loop), index=1
  %say = f32[8]{0} custom-call(%q), custom_call_target="say", custom_call_has_side_effect=true
  %tell = f32[8]{0} custom-call(%say), custom_call_target="tell", custom_call_has_side_effect=true
  ROOT %r = (f32[4,8]{1,0}, f32[8]{0}) tuple(%all, %q)
}
"""


def _problems(*changes: tuple[str, str]) -> list[str]:
    edited = LOOP
    for old, new in changes:
        assert old in edited
        edited = edited.replace(old, new)
    return find_meaning_problems(hlo.parse(LOOP), hlo.parse(edited))


SAME = {
    "nothing": (),
    "a number that is computed": (
        ("%n = s32[] constant(4)", "%m = s32[] constant(2)\n  %n = s32[] add(%m, %m)"),
    ),
    "a number that is chosen": (
        (
            "%n = s32[] constant(4)",
            (
                "%m = s32[] constant(4)\n  %yes = pred[] constant(true)\n"
                "  %n = s32[] select(%yes, %m, %i)"
            ),
        ),
    ),
    "the other way round": (("compare(%i, %n), direction=LT", "compare(%n, %i), direction=GT"),),
    "bytes in another shape and back": (
        (
            "%made = f32[1,8]{1,0} negate(%row)",
            (
                "%flat = f32[8]{0} bitcast(%row)\n  %again = f32[1,8]{1,0} bitcast(%flat)\n"
                "  %made = f32[1,8]{1,0} negate(%again)"
            ),
        ),
    ),
}


@pytest.mark.parametrize("what", SAME)
def test_what_computes_the_same_is_let_pass(what: str) -> None:
    assert _problems(*SAME[what]) == []


OTHER = {
    "the header": (
        "replica_count=1",
        "input_output_alias={ {0}: (0, {}, may-alias) }",
        "the header has a different input_output_alias",
    ),
    "one iteration less": ("constant(4)", "constant(3)", "result 0 is a different value"),
    "another operation": ("negate(%row)", "abs(%row)", "result 0 is a different value"),
    "another result": ("tuple(%all, %q)", "tuple(%p, %q)", "result 0 is a different value"),
    "a loop whose end is not known": (
        "%n = s32[] constant(4)",
        "%n = s32[] custom-call(), custom_call_target=\"many\"",
        "the trip count of loop is unknown",
    ),
    "an effect on another value": (
        "custom-call(%say)",
        "custom-call(%q)",
        "side effects do not see the same values in the same order: tell",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHER)
def test_what_computes_something_else_is_refused(what: str) -> None:
    old, new, says = OTHER[what]
    assert says in _problems((old, new))


def _with_calls(*lines: str) -> str:
    """The program with these instead of its two calls."""
    kept = [line for line in LOOP.split("\n") if "custom-call(" not in line]
    place = next(number for number, line in enumerate(kept) if "ROOT %r" in line)
    return "\n".join([*kept[:place], *(f"  {line}" for line in lines), *kept[place:]])


_UNKNOWN = '%one = f32[8]{0} custom-call(%q), custom_call_target="f"'
_OTHER = '%two = f32[8]{0} custom-call(%q), custom_call_target="g"'
_SEEN = f"{_OTHER}, custom_call_has_side_effect=true"
_TOGETHER = "%sum = f32[8]{0} all-reduce(%q), to_apply=%add"
_ADD = """
%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}

ENTRY"""


@pytest.mark.parametrize(
    ("given", "edited", "problems"),
    [
        ((_UNKNOWN, _OTHER), (_OTHER, _UNKNOWN), []),
        ((_UNKNOWN, _SEEN), (_SEEN, _UNKNOWN), []),
        ((_TOGETHER, _SEEN), (_SEEN, _TOGETHER), []),
        (
            (_UNKNOWN, _OTHER),
            (_UNKNOWN,),
            ["two does not run as often, or not on the same values"],
        ),
    ],
)
def test_calls_stay_in_order_with_what_they_touch(
    given: tuple[str, ...], edited: tuple[str, ...], problems: list[str]
) -> None:
    before, after = (
        hlo.parse(_with_calls(*lines).replace("\nENTRY", _ADD)) for lines in (given, edited)
    )
    assert find_meaning_problems(before, after) == problems


NEGATED_TWICE = (
    "  %made = f32[1,8]{1,0} negate(%row)\n",
    "  %first = f32[1,8]{1,0} negate(%row)\n  %made = f32[1,8]{1,0} negate(%first)\n",
)


@pytest.mark.parametrize("wrong", [(), (0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_changed_loops_that_follow_one_another_are_judged_as_one(wrong: tuple[int, ...]) -> None:
    given, other = hlo.parse(LOOP), hlo.parse(LOOP.replace(*NEGATED_TWICE))
    changes = [Change(other if place in wrong else given, "loops") for place in range(3)]
    assert bool(find_problems(given, changes)) == (2 in wrong)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("constant(5)", "constant(4)"),
        ("subtract(%constant.remat, %parameter.remat)", "add(%constant.remat, %parameter.remat)"),
        ("index=2\n  %i.8.remat", "index=2\n  %i.8.remat"),
    ],
)
def test_slices_laid_out_by_themselves_are_those_of_the_stack(right: str, wrong: str) -> None:
    [fixture] = [one for one in iter_fixtures() if one.path.stem == "relay"]
    given = hlo.parse(fixture.program)
    text = format_module(edit(fixture, given).module)
    assert right in text
    problems = find_meaning_problems(given, hlo.parse(text.replace(right, wrong)))
    assert bool(problems) == (right != wrong)
