"""A slice that says where it begins must begin there: XLA:GPU looks at no index."""

from __future__ import annotations

import re

import pytest

from hlomem import hlo
from hlomem.hlo.text.printer import format_module
from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.opt.checks.equivalence import find_meaning_problems
from hlomem.opt.checks.offsets import find_offset_problems, new_slices, offset_by_indices
from tests.opt.fixtures import edit, iter_fixtures

_BACK = '"linear":{"byte_offset":"1310720","byte_stride":"-262144"}'
_WRONG = (
    '"linear":{"byte_offset":"0","byte_stride":"262144"}',
    '"linear":{"byte_offset":"1310720","byte_stride":"262144"}',
    '"linear":{"byte_offset":"0","byte_stride":"0"}',
    '"cyclic":{"byte_offset":"1310720","byte_stride":"-262144"}',
)
[FIXTURE] = [one for one in iter_fixtures() if one.path.stem == "loops_slices"]


@pytest.fixture(scope="module")
def texts() -> tuple[str, str]:
    """A scan and its gradient as XLA:GPU schedules them, and with a product repeated in the second
    loop, which goes through the layers backwards."""
    given = hlo.parse(FIXTURE.program)
    return format_module(given), format_module(edit(FIXTURE, given).module)


def _spoil(edited: str, note: str) -> str:
    lines = [
        line.replace(_BACK, note) if "ROOT %dynamic_slice.5.2.remat " in line else line
        for line in edited.splitlines()
    ]
    return "\n".join(lines)


def _in_branch(text: str) -> str:
    """The same program, run where a third argument says so; another array otherwise."""
    weights, x = "f32[6,256,256]{2,1,0}", "f32[2048,256]{1,0}"
    both = f"({weights}, {x})"
    head, entry = re.sub(r", entry_computation_layout=\{.*?\}\}", "", text).split("ENTRY ")
    taken = (rf"= \1 get-tuple-element(%both), index={number}" for number in (0, 1))
    for number, element in enumerate(taken):
        entry = re.sub(rf"= (\S+) parameter\({number}\)", element, entry)
    lines = entry.splitlines()
    lines[0] = f"%chosen (both: {both}) -> {weights} {{\n  %both = {both} parameter(0)"
    return f"""{head}
{chr(10).join(lines)}

%other (both.1: {both}) -> {weights} {{
  %both.1 = {both} parameter(0)
  ROOT %weights.2 = {weights} get-tuple-element(%both.1), index=0
}}

ENTRY %outer (w: {weights}, y: {x}, which: pred[]) -> {weights} {{
  %w = {weights} parameter(0)
  %y = {x} parameter(1)
  %which = pred[] parameter(2)
  %given = {both} tuple(%w, %y)
  ROOT %result = {weights} conditional(%which, %given, %given), BRANCHES
}}
""".replace("BRANCHES", "true_computation=%chosen, false_computation=%other")


def test_slices_of_loops_in_a_branch_are_looked_at(texts: tuple[str, str]) -> None:
    given, edited = (hlo.parse(_in_branch(text)) for text in texts)
    assert [one.name for one in new_slices(given, edited)] == ["dynamic_slice.5.2.remat"]
    assert find_meaning_problems(given, edited) == []
    wrong = hlo.parse(_in_branch(_spoil(texts[1], _WRONG[0])))
    assert find_meaning_problems(given, wrong) == [
        "dynamic_slice.5.2.remat does not begin where its indices say"
    ]


def test_a_slice_in_another_loop_says_where_it_begins_there(texts: tuple[str, str]) -> None:
    given, edited = map(hlo.parse, texts)
    assert [one.name for one in new_slices(given, edited)] == ["dynamic_slice.5.2.remat"]
    assert find_meaning_problems(given, edited) == []


@pytest.mark.parametrize("note", _WRONG)
def test_a_slice_that_says_another_place_is_a_problem(texts: tuple[str, str], note: str) -> None:
    given, edited = hlo.parse(texts[0]), hlo.parse(_spoil(texts[1], note))
    assert find_meaning_problems(given, edited) == [
        "dynamic_slice.5.2.remat does not begin where its indices say"
    ]


def test_a_given_slice_that_says_another_place_is_a_problem(texts: tuple[str, str]) -> None:
    spoiled = texts[1].replace(
        '"linear":{"byte_offset":"0","byte_stride":"262144"}',
        '"linear":{"byte_offset":"262144","byte_stride":"262144"}',
    )
    assert spoiled != texts[1]
    problems = find_meaning_problems(hlo.parse(texts[0]), hlo.parse(spoiled))
    assert problems == ["dynamic_slice.5.2 does not begin where its indices say"]


def test_without_indices_to_go_by_a_new_slice_is_a_problem(texts: tuple[str, str]) -> None:
    assert find_offset_problems(*map(hlo.parse, texts)) == [
        "dynamic_slice.5.2.remat does not begin where its indices say"
    ]
    assert find_offset_problems(hlo.parse(texts[0]), hlo.parse(texts[0])) == []


@pytest.mark.parametrize(
    ("element", "offset"), [("pred", 3 * 64), ("f32", 3 * 64 * 4), ("s4", 3 * 64), ("bf16", 384)]
)
def test_an_element_takes_whole_bytes_unless_it_is_packed(element: str, offset: int) -> None:
    whole, part = [parse_shape_text(f"{element}[{rows},64,1]{{2,1,0}}") for rows in (56, 1)]
    assert offset_by_indices(whole, part, [3, 0, 0]) == offset
    packed = parse_shape_text("s4[56,64,1]{2,1,0:E(4)}")
    assert offset_by_indices(packed, part, [3, 0, 0]) is None
