"""What a TPU may write over its operands, beside the rules of all backends."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.analysis.tpu_alias import may_alias
from hlomem.hlo.shape import ROOT_INDEX, ShapeIndex

MODULE = """\
HloModule m, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

ENTRY %main (a: f32[8], s: f32[]) -> (f32[8], f32[8], f32[]) {
  %a = f32[8]{0:T(128)} parameter(0)
  %s = f32[]{:T(128)} parameter(1)
  %b = f32[8]{0:T(128)} negate(%a)
  %one = f32[8]{0:T(128)} all-reduce(%b), replica_groups={}, to_apply=%add
  %two = (f32[8]{0:T(128)}, f32[8]{0:T(128)}) all-reduce(%one, %b), replica_groups={}, to_apply=%add
  %copied = f32[]{:T(128)S(6)} copy(%s)
  %doubled = f32[]{:T(128)S(6)} add(%copied, %copied)
  %quadrupled = f32[]{:T(128)} add(%doubled, %doubled)
  %moved = f32[]{:T(128)S(6)} copy(%quadrupled)
  %halved = f32[]{:T(128)S(6)} subtract(%moved, %s)
  %p = f32[8]{0:T(128)} get-tuple-element(%two), index=0
  %q = f32[8]{0:T(128)} get-tuple-element(%two), index=1
  ROOT %result = (f32[8]{0:T(128)}, f32[8]{0:T(128)}, f32[]{:T(128)}) tuple(%p, %q, %quadrupled)
}
"""


@pytest.mark.parametrize(
    ("operand", "user", "index", "answer"),
    [
        ("b", "one", (), True),
        ("one", "two", (0,), True),
        ("one", "two", (1,), False),
        ("b", "two", (1,), True),
        ("copied", "doubled", (), False),
        ("doubled", "quadrupled", (), None),
        ("moved", "halved", (), None),
        ("a", "b", (), None),
    ],
)
def test_may_alias(operand: str, user: str, index: tuple[int, ...], answer: bool | None) -> None:
    by_name = {each.name: each for each in hlo.parse(MODULE).entry.instructions}
    part = ShapeIndex(index) if index else ROOT_INDEX
    assert may_alias(by_name[operand], by_name[user], part) is answer


SOFTMAX = """\
HloModule m, is_scheduled=true

%exponent (p: f32[2,64,4], q: f32[2,4,64]) -> f32[2,4,64] {
  %p = f32[2,64,4]{2,0,1:T(2,128)} parameter(0)
  %q = f32[2,4,64]{1,0,2:T(2,128)} parameter(1)
  %seen = f32[2,4,64]{1,0,2:T(2,128)} bitcast(%p)
  %less = f32[2,4,64]{1,0,2:T(2,128)} subtract(%seen, %q)
  ROOT %result = f32[2,4,64]{1,0,2:T(2,128)} exponential(%less)
}

ENTRY %main (a: f32[2,64,4], b: f32[2,4,64]) -> f32[2,4,64] {
  %a = f32[2,64,4]{2,0,1:T(2,128)} parameter(0)
  %b = f32[2,4,64]{1,0,2:T(2,128)} parameter(1)
  ROOT %f = f32[2,4,64]{1,0,2:T(2,128)} fusion(%a, %b), kind=kLoop, calls=%exponent
}
"""
BY_HINTS = SOFTMAX.replace(
    "calls=%exponent", 'calls=%exponent, backend_config={"aliasing_operands":{"lists":[]}}'
)
OTHERWISE_IN_MEMORY = SOFTMAX.replace("[2,64,4]{2,0,1:", "[2,64,4]{1,0,2:")


@pytest.mark.parametrize(
    ("module", "answer"), [(SOFTMAX, True), (BY_HINTS, None), (OTHERWISE_IN_MEMORY, None)]
)
def test_a_fusion_without_hints_works_on_another_shape_of_the_same_bytes(
    module: str, answer: bool | None
) -> None:
    entry = hlo.parse(module).entry
    assert may_alias(entry.parameters[0], entry.root, ROOT_INDEX) is answer
