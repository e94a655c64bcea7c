"""A dimension of another size everywhere, or the instruction that forbids it."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.base.errors import EditError
from hlomem.hlo.rewrite import Rewriter
from hlomem.pipeline import run_stages
from tests.golden_programs import GOLDEN_PROGRAMS, GoldenProgram
from tests.hlo.structure import structure

HEAD = "HloModule m, is_scheduled=true\n\nENTRY %main (a: f32[8,128]) -> f32[] {\n"
BODY = """\
  %a = f32[8,128]{{1,0}} parameter(0)
  %flat = f32[1024]{{0}} bitcast(%a)
  %table = f32[1024]{{0}} constant({{...}})
  %sum = f32[1024]{{0}} add(%flat, %table)
  %deep = f32[8,2,64]{{2,1,0}} bitcast(%sum)
{line}
  ROOT %end = f32[] constant(0)
}}
"""


def _resized(line: str, old: int = 8, new: int = 24) -> tuple[hlo.HloModule, dict[int, int]]:
    rewriter = Rewriter(hlo.parse(HEAD + BODY.format(line=line)))
    sizes = rewriter.resize(old, new)
    module = rewriter.finish()
    assert structure(hlo.parse(hlo.format_module(module))) == structure(module)
    return module, sizes


FOLLOWING = {
    "a whole slice": (
        "  %x = f32[8,64]{1,0} slice(%a), slice={[0:8], [0:64]}",
        "f32[24,64]{1,0} slice(%a), slice={[0:24], [0:64]}",
    ),
    "a whole dynamic slice": (
        """  %i = s32[] constant(0)
  %x = f32[8,1]{1,0} dynamic-slice(%a, %i, %i), dynamic_slice_sizes={8,1}""",
        "dynamic_slice_sizes={24,1}",
    ),
    "a transposing bitcast": (
        "  %t = f32[128,8]{0,1} bitcast(%a)\n  %x = f32[128,8]{1,0} copy(%t)",
        "%x = f32[128,24]{1,0} copy(%t)",
    ),
    "a gathering": (
        "  %x = f32[32,128]{1,0} all-gather(%a), dimensions={0}, replica_groups={{0,1,2,3}}",
        "f32[96,128]{1,0} all-gather",
    ),
}


@pytest.mark.parametrize("what", FOLLOWING)
def test_what_follows_from_a_size_follows(what: str) -> None:
    line, expected = FOLLOWING[what]
    module, sizes = _resized(line)
    text = hlo.format_module(module)
    assert expected in text
    assert sizes[1024] == 3072
    assert "%deep = f32[24,2,64]{2,1,0} bitcast(%sum)" in text
    run_stages(module)


FORBIDDING = {
    "a slice of it": "  %x = f32[4,128]{1,0} slice(%a), slice={[0:4], [0:128]}",
    "a walk over it": (
        "  %i = s32[] constant(0)\n"
        "  %x = f32[1,128]{1,0} dynamic-slice(%a, %i, %i), dynamic_slice_sizes={1,128}"
    ),
    "a concatenation": "  %x = f32[16,128]{1,0} concatenate(%a, %a), dimensions={0}",
    "padding": "  %z = f32[] constant(0)\n  %x = f32[9,128]{1,0} pad(%a, %z), padding=1_0x0_0",
    "parts of it": "  %x = f32[2,4,128]{2,1,0} bitcast(%a)",
}


@pytest.mark.parametrize("what", FORBIDDING)
def test_what_forbids_a_size_is_named(what: str) -> None:
    with pytest.raises(EditError, match="`x`: "):
        _resized(FORBIDDING[what])


def test_one_element_is_nobodys_size() -> None:
    with pytest.raises(EditError, match="cannot be resized from 1 to 2"):
        _resized("", 1, 2)


@pytest.mark.parametrize("golden", GOLDEN_PROGRAMS, ids=str)
def test_a_size_nobody_has_there_and_back_changes_no_shape(golden: GoldenProgram) -> None:
    module = hlo.parse(golden.text)
    sizes = [size for each in module.entry.parameters for size in each.shape.dimensions if size > 1]
    if not sizes:
        return
    factor = 10_007
    rewriter = Rewriter(module)
    try:
        rewriter.resize(sizes[0], sizes[0] * factor)
    except EditError:
        return
    larger = rewriter.finish()
    assert structure(hlo.parse(hlo.format_module(larger))) == structure(larger)
    back = Rewriter(larger)
    assert back.resize(sizes[0] * factor, sizes[0])
    shapes = [each.shape for each in back.finish().iter_instructions()]
    assert shapes == [each.shape for each in module.iter_instructions()]
