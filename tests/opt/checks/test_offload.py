"""The judge of programs with values in the host's memory: right ones pass, wrong ones do not."""

from __future__ import annotations

import re

import pytest

from hlomem import hlo
from hlomem.hlo.text.printer import format_module
from hlomem.opt.checks import Allowed
from hlomem.opt.checks.offload import find_move_problems
from hlomem.opt.orders.planned_orders import temporary_bytes
from hlomem.opt.remat.offload import choose_moves, make_moves
from tests.opt.remat.programs import HOST, gpu_chain

STAGES = gpu_chain()
TEXT = format_module(
    make_moves(
        STAGES.module,
        choose_moves(STAGES, round(temporary_bytes(STAGES) * 0.6)),
        HOST,
    )
)


def problems(text: str) -> list[str]:
    return find_move_problems(STAGES.module, hlo.parse(text), Allowed(host_color=HOST))


def test_moves_are_accepted() -> None:
    assert TEXT.count("offload-start") > 2
    assert not problems(TEXT)


@pytest.mark.parametrize(
    ("pattern", "new", "said"),
    [
        (r"multiply\(%g2, %a1.fetch-done\)", "multiply(%g2, %a2.fetch-done)", "not compute what"),
        (r"copy-start\(%a1\)", "copy-start(%a0)", "does not compute what it did"),
        (r"S\(5\)", "S(6)", "not to the host's"),
        (r"copy-start\(%a2.offload-done\)", "copy-start(%a1.offload-done)", "not part of one copy"),
        (r"copy-done\(%a2.fetch-start\)", "copy-done(%a1.fetch-start)", "not part of one copy"),
        (r"(%g5 = f32\[262144\]\{0\} multiply\(%g6, )[^)]*\)", r"\1%g6)", "not compute what"),
        (r"tanh\(%a1\)", "sine(%a1)", "does not compute what it did"),
    ],
)
def test_a_wrong_program_is_refused(pattern: str, new: str, said: str) -> None:
    wrong, count = re.subn(pattern, new, TEXT)
    assert count
    assert any(said in problem for problem in problems(wrong)), problems(wrong)


def test_a_value_that_is_written_over_is_refused() -> None:
    text = """\
HloModule m, is_scheduled=true

ENTRY %main (p: f32[8], i: s32[]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %i = s32[] parameter(1)
  %a = f32[8]{0} sine(%p)
  %one = f32[1]{0} slice(%p), slice={[0:1]}
COPIES  %u = f32[8]{0} dynamic-update-slice(%a, %one, %i)
  ROOT %r = f32[8]{0} add(%u, %p)
}
"""
    copies = """\
  %s = (f32[8]{0:S(5)}, f32[8]{0}, u32[]) copy-start(%a)
  %d = f32[8]{0:S(5)} copy-done(%s)
  %t = (f32[8]{0}, f32[8]{0:S(5)}, u32[]) copy-start(%d)
  %b = f32[8]{0} copy-done(%t)
"""
    given = hlo.parse(text.replace("COPIES", ""))
    edited = hlo.parse(text.replace("COPIES", copies).replace("slice(%a, %one", "slice(%b, %one"))
    found = find_move_problems(given, edited, Allowed(host_color=HOST))
    assert found == [
        "t must share the memory of another value"
    ]  # its first part is what comes back
