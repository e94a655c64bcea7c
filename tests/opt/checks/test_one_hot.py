# ruff: noqa: E501 - lines of HLO
"""A scatter of one element for each row of zeros is a selection, and nothing else is."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.opt.checks.equivalence import find_meaning_problems

_SCATTER = """HloModule m, is_scheduled=true

%sum (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}

%scattered (zeros: f32[4,3,16], labels: s32[4,3], losses: f32[4,3]) -> f32[4,3,16] {
  %zeros = f32[4,3,16]{2,1,0} parameter(0)
  %labels = s32[4,3]{1,0} parameter(1)
  %losses = f32[4,3]{1,0} parameter(2)
  %row = s32[4,3,1]{2,1,0} iota(), iota_dimension=0
  %place = s32[4,3,1]{2,1,0} iota(), iota_dimension=1
  %label = s32[4,3,1]{2,1,0} bitcast(%labels)
  %all = s32[4,3,3]{2,1,0} concatenate(%row, %place, %label), dimensions={2}
  %indices = s32[12,3]{1,0} bitcast(%all)
  %updates = f32[12,1,1,1]{3,2,1,0} bitcast(%losses)
  ROOT %scatter = f32[4,3,16]{2,1,0} scatter(%zeros, %indices, %updates), update_window_dims={1,2,3}, inserted_window_dims={}, scatter_dims_to_operand_dims={0,1,2}, index_vector_dim=1, to_apply=%sum
}

ENTRY %main (labels: s32[4,3], losses: f32[4,3]) -> f32[4,3,16] {
  %labels = s32[4,3]{1,0} parameter(0)
  %losses = f32[4,3]{1,0} parameter(1)
  %zero = f32[] constant(0)
  %zeros = f32[4,3,16]{2,1,0} broadcast(%zero), dimensions={}
  ROOT %r = f32[4,3,16]{2,1,0} fusion(%zeros, %labels, %losses), kind=kInput, calls=%scattered
}
"""
_SELECTION = """HloModule m, is_scheduled=true

%selected (labels: s32[4,3], losses: f32[4,3]) -> f32[4,3,16] {
  %labels = s32[4,3]{1,0} parameter(0)
  %losses = f32[4,3]{1,0} parameter(1)
  %index = s32[4,3,16]{2,1,0} broadcast(%labels), dimensions={0,1}
  %column = s32[4,3,16]{2,1,0} iota(), iota_dimension=2
  %here = pred[4,3,16]{2,1,0} compare(%index, %column), direction=EQ
  %zero = f32[] constant(0)
  %zeros = f32[4,3,16]{2,1,0} broadcast(%zero), dimensions={}
  %none = f32[4,3]{1,0} broadcast(%zero), dimensions={}
  %value = f32[4,3]{1,0} add(%none, %losses)
  %values = f32[4,3,16]{2,1,0} broadcast(%value), dimensions={0,1}
  ROOT %select = f32[4,3,16]{2,1,0} select(%here, %values, %zeros)
}

ENTRY %main (labels: s32[4,3], losses: f32[4,3]) -> f32[4,3,16] {
  %labels = s32[4,3]{1,0} parameter(0)
  %losses = f32[4,3]{1,0} parameter(1)
  ROOT %r = f32[4,3,16]{2,1,0} fusion(%labels, %losses), kind=kLoop, calls=%selected
}
"""


def _changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def _problems(given: str, edited: str) -> list[str]:
    return find_meaning_problems(hlo.parse(given), hlo.parse(edited))


ADDED = ("broadcast(%value), dimensions={0,1}", "broadcast(%losses), dimensions={0,1}")


def test_one_element_for_each_row_is_a_selection() -> None:
    assert _problems(_SCATTER, _SELECTION) == []
    assert _problems(_SELECTION, _SCATTER) == []


def test_a_number_that_is_not_zero_is_not_changed_by_adding_it() -> None:
    half = "%half = f32[] constant(-0.5)\n  "
    updates = "%updates = f32[12,1,1,1]{3,2,1,0}"
    number = f"{half}{updates} broadcast(%half), dimensions={{}}"
    given = _changed(_SCATTER, (f"{updates} bitcast(%losses)", number))
    values = "%values = f32[4,3,16]{2,1,0}"
    number = f"{half}{values} broadcast(%half), dimensions={{}}"
    edited = _changed(_SELECTION, (f"{values} broadcast(%value), dimensions={{0,1}}", number))
    assert _problems(given, edited) == []
    zero = (("constant(-0.5)", "constant(-0)"),)
    assert _problems(_changed(given, *zero), _changed(edited, *zero))


WRONG_SELECTIONS = {
    "minus zero stays": (ADDED,),
    "another comparison": (("direction=EQ", "direction=LE"),),
    "another dimension": (("iota_dimension=2", "iota_dimension=1"),),
    "turned around": (("select(%here, %values, %zeros)", "select(%here, %zeros, %values)"),),
    "not zeros": (("%zero = f32[] constant(0)", "%zero = f32[] constant(1)"),),
    "another value": (("add(%none, %losses)", "add(%losses, %losses)"),),
}
WRONG_SCATTERS = {
    "rows that are not counted": (
        (
            "%row = s32[4,3,1]{2,1,0} iota(), iota_dimension=0",
            "%row = s32[4,3,1]{2,1,0} bitcast(%labels)",
        ),
    ),
    "rows counted twice": (("iota(), iota_dimension=0", "iota(), iota_dimension=1"),),
    "rows in another order": (
        ("concatenate(%row, %place, %label)", "concatenate(%place, %row, %label)"),
    ),
    "the largest of updates": (("ROOT %z = f32[] add(%x, %y)", "ROOT %z = f32[] maximum(%x, %y)"),),
    "to what is not zero": (("%zero = f32[] constant(0)", "%zero = f32[] constant(2)"),),
    "other dimensions of the operand": (
        ("scatter_dims_to_operand_dims={0,1,2}", "scatter_dims_to_operand_dims={0,2,1}"),
    ),
    "indices along rows": (("index_vector_dim=1", "index_vector_dim=0"),),
}


@pytest.mark.parametrize("changes", WRONG_SELECTIONS.values(), ids=list(WRONG_SELECTIONS))
def test_other_selections_are_refused(changes: tuple[tuple[str, str], ...]) -> None:
    assert _problems(_SCATTER, _changed(_SELECTION, *changes))


@pytest.mark.parametrize("changes", WRONG_SCATTERS.values(), ids=list(WRONG_SCATTERS))
def test_other_scatters_are_refused(changes: tuple[tuple[str, str], ...]) -> None:
    assert _problems(_changed(_SCATTER, *changes), _SELECTION)
