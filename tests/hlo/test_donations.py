"""Donations of a program that is otherwise as it was."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.base.errors import EditError
from hlomem.hlo.donations import with_donations
from hlomem.hlo.shape import ROOT_INDEX, ShapeIndex
from hlomem.hlo.text.attributes import InputOutputAlias

TEXT = """HloModule m, is_scheduled=true, buffer_donor={ (0, {}), (1, {}) }, replica_count=1

ENTRY e {
  p = f32[8] parameter(0)
  q = f32[8] parameter(1)
  n = f32[8] negate(p)
  x = f32[8] exponential(q)
  k = s32[] constant(1)
  ROOT t = (f32[8], f32[8], s32[]) tuple(n, x, k)
}
"""


def alias(output: int, parameter: int) -> InputOutputAlias:
    return InputOutputAlias(ShapeIndex((output,)), parameter, ROOT_INDEX, must_alias=False)


def test_all_but_the_header_is_shared() -> None:
    module = hlo.parse(TEXT)
    made = with_donations(module, [alias(0, 1)])
    assert made.entry is module.entry
    assert module.input_output_alias == ()
    again = hlo.parse(hlo.format_module(made))
    assert again.input_output_alias == made.input_output_alias == (alias(0, 1),)
    assert list(again.attributes)[:2] == ["is_scheduled", "input_output_alias"]


def test_a_parameter_with_an_output_is_not_any_outputs_any_more() -> None:
    module = hlo.parse(TEXT)
    assert [donor[0] for donor in with_donations(module, [alias(0, 1)]).buffer_donor] == [0]
    both = with_donations(module, [alias(0, 1), alias(1, 0)])
    assert both.buffer_donor == ()
    assert "buffer_donor" not in both.attributes


def test_no_donation_at_all_leaves_no_attribute() -> None:
    module = with_donations(hlo.parse(TEXT), [alias(0, 0)])
    assert "input_output_alias" not in with_donations(module, []).attributes


@pytest.mark.parametrize(
    ("aliases", "problem"),
    [
        ([alias(0, 2)], "there is no parameter 2"),
        ([alias(3, 0)], "the result has no part at {3}"),
        ([alias(2, 0)], "it needs one array of both"),
        ([alias(0, 0), alias(0, 1)], "output {0} already takes parameter 0"),
        ([alias(0, 0), alias(1, 0)], "already donated to output {0}"),
    ],
)
def test_what_cannot_be_donated_is_refused(aliases: list[InputOutputAlias], problem: str) -> None:
    with pytest.raises(EditError, match=problem.replace("{", r"\{").replace("}", r"\}")):
        with_donations(hlo.parse(TEXT), aliases)
