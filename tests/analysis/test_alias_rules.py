"""What must and what may be written in place, after the rules of `alias_info.cc`."""

from __future__ import annotations

import pytest

from hlomem.analysis.alias_rules import can_share_operand_buffer, in_place_pairs
from hlomem.hlo.parser import parse
from hlomem.hlo.shape import ROOT_INDEX
from hlomem.pipeline import run_stages

UPDATE = """\
HloModule update, is_scheduled=true

%fused (p0: f32[8], p1: f32[2], p2: s32[]) -> f32[8] {
  %p0 = f32[8]{0} parameter(0)
  %p1 = f32[2]{0} parameter(1)
  %p2 = s32[] parameter(2)
  ROOT %update = f32[8]{0} dynamic-update-slice(%p0, %p1, %p2)
}

ENTRY %main (a: f32[8], b: f32[2], i: s32[]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %b = f32[2]{0} parameter(1)
  %i = s32[] parameter(2)
  %copy = f32[8]{0} copy(%a)
  ROOT %fusion = f32[8]{0} fusion(%copy, %b, %i), kind=kLoop, calls=%fused
}
"""


def test_a_fusion_that_updates_its_parameter_writes_in_place() -> None:
    stages = run_stages(parse(UPDATE))
    fusion = stages.module.entry.root
    pairs = in_place_pairs(fusion, stages.call_graph.bodies)
    assert [tuple(pair) for pair in pairs] == [(0, (), ())]
    (result,) = stages.dataflow.value_set(fusion, ROOT_INDEX)
    together = stages.aliasing.buffer_of[result].values
    assert [each.instruction.name for each in together] == ["copy", "fusion"]


@pytest.mark.parametrize(
    ("operation", "may_share"),
    [
        ("negate(%x)", True),
        ("multiply(%x, %x)", True),
        ("reverse(%x), dimensions={0}", False),
        ("sort(%x), dimensions={0}, to_apply=%less", True),
    ],
)
def test_an_elementwise_result_may_take_the_place_of_its_operand(
    operation: str, may_share: bool
) -> None:
    text = f"""\
HloModule share, is_scheduled=true

%less (l: f32[], r: f32[]) -> pred[] {{
  %l = f32[] parameter(0)
  %r = f32[] parameter(1)
  ROOT %lt = pred[] compare(%l, %r), direction=LT
}}

ENTRY %main (a: f32[8]) -> f32[8] {{
  %a = f32[8]{{0}} parameter(0)
  %x = f32[8]{{0}} copy(%a)
  ROOT %y = f32[8]{{0}} {operation}
}}
"""
    stages = run_stages(parse(text))
    user = stages.module.entry.root
    shares = can_share_operand_buffer(
        stages.dataflow, user.operands[0], ROOT_INDEX, user, ROOT_INDEX
    )
    assert shares == may_share
