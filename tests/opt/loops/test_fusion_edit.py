"""Fusions lose the results and operands that nobody needs, and compute what they did."""

from __future__ import annotations

import re

import pytest

from hlomem import hlo
from hlomem.base.errors import HlomemError
from hlomem.hlo.text.printer import format_module
from hlomem.opt.checks.equivalence import find_meaning_problems
from hlomem.opt.loops.change import apply_loop_plan
from hlomem.opt.loops.choice import plan_loops
from hlomem.opt.loops.fusion_edit import FusionEdits, LoopDraft
from hlomem.opt.loops.pairs import find_pairs
from hlomem.opt.orders.cost import Costs
from hlomem.opt.orders.effects import Effects
from hlomem.pipeline import in_text_order, start_stages
from tests.opt.loops.test_stacks import TEXT


@pytest.mark.parametrize(
    ("taken", "results", "operands"),
    [(("s.1", "x.1"), 2, ["s", "x", "i"]), (("x.1",), 1, ["x"]), (("s.1", "t.1", "x.1"), 3, None)],
)
def test_a_fusion_makes_what_is_taken(
    taken: tuple[str, ...], results: int, operands: list[str] | None
) -> None:
    module = hlo.parse(TEXT)
    loops = LoopDraft(module)
    body = loops.body(module.computation_by_name["body"])
    given = [one.name for one in loops.body(module.computation_by_name["two"]).instructions]
    body.instructions = [
        one
        for one in body.instructions
        if one.name in taken or one.name not in ("s.1", "t.1", "x.1")
    ]
    FusionEdits(loops).drop_results(body)
    [fusion] = [one for one in body.instructions if one.opcode == "fusion"]
    assert len(list(fusion.shape.leaves())) == results
    draft = loops.body(module.computation_by_name["two"])
    if operands is None:
        assert [one.name for one in draft.instructions] == given
        return
    assert [operand.name for operand in fusion.operands] == operands
    assert [one.parameter_number for one in draft.instructions if one.opcode == "parameter"] == (
        list(range(len(operands)))
    )
    assert draft.root.shape.text == fusion.shape.text
    assert (draft.root.opcode == "tuple") is (results > 1)


def _edited(dropped: str, given: str = TEXT) -> tuple[hlo.HloModule, str]:
    """The program without the stack of a value, made of the other."""
    stages = start_stages(hlo.parse(given), order_lists=in_text_order)
    [pair] = find_pairs(stages.module)
    size_of = stages.options.machine.size_of
    plan = plan_loops(pair, Costs(size_of), size_of, Effects(stages.call_graph), 0)
    assert plan is not None
    assert [stack.value.name for stack in plan.dropped] == [dropped]
    return stages.module, format_module(apply_loop_plan(stages.module, plan))


def _twice() -> str:
    """The same where the fusion is given the counter three times."""
    text = TEXT.replace(
        "p3: s32[]) -> (f32[3,2],", "p3: s32[], p4: s32[], p5: s32[]) -> (f32[3,2],"
    )
    text = text.replace("fusion(%s, %t, %x, %i)", "fusion(%s, %t, %x, %i, %i, %i)")
    return text.replace(
        "  %tanh = f32[2]{0} tanh(%sine)",
        """  %p4 = s32[] parameter(4)
  %p5 = s32[] parameter(5)
  %sum.1 = s32[] add(%p4, %p5)
  %number = f32[] convert(%sum.1)
  %numbers = f32[2]{0} broadcast(%number), dimensions={}
  %tanh = f32[2]{0} multiply(%sine, %numbers)""",
    )


@pytest.mark.parametrize("text", [TEXT, _twice()], ids=["once", "thrice"])
def test_a_recomputed_fusion_takes_the_slice_itself(text: str) -> None:
    given, edited = _edited("tanh", text)
    module = hlo.parse(edited)
    module.validate()
    assert not find_meaning_problems(given, module)
    [back] = [one for one in module.computations if one.name == "back"]
    [made] = [one for one in back.instructions if one.name == "both.remat"]
    opcodes = [one.opcode for one in made.called_computations[0].instructions]
    assert opcodes.count("dynamic-slice") == 1
    assert not [one for one in back.instructions if "slice" in one.name]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"tanh\((%sine[\w.]*)\)", r"sine(\1)"),
        (r"(get-tuple-element\(%both\)), index=0", r"\1, index=1"),
        (r"tuple\(%put, %tanh\)", "tuple(%tanh, %put)"),
        (r"constant\(2\)", "constant(1)"),
    ],
)
def test_an_edit_gone_wrong_is_refused(old: str, new: str) -> None:
    given, text = _edited("tanh")
    wrong, count = re.subn(old, new, text)
    assert count
    try:
        module = hlo.parse(wrong)
        module.validate()
    except HlomemError:
        return
    assert find_meaning_problems(given, module)
