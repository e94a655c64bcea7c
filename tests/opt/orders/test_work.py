"""Matrix products and bytes sent to other devices, counted on compiled programs."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.machines.registry import MACHINES
from hlomem.opt.orders.work import Work, module_work

PROGRAM = """HloModule m, is_scheduled=true, num_partitions=8

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}}

ENTRY main {{
  x = f32[64,128] parameter(0)
  ROOT r = {result} {opcode}(x), channel_id=1, replica_groups={groups}{more}
}}
"""
SIZE = 64 * 128 * 4
REDUCED = ", to_apply=add"


@pytest.mark.parametrize(
    ("opcode", "result", "more", "groups", "sent"),
    [
        ("all-gather", "f32[256,128]", ", dimensions={0}", "{{0,1,2,3},{4,5,6,7}}", 3 * SIZE),
        ("all-gather", "f32[256,128]", ", dimensions={0}", "[2,4]<=[8]", 3 * SIZE),
        ("all-gather", "f32[128,128]", ", dimensions={0}", "[4,2]<=[2,4]T(1,0)", SIZE),
        ("all-reduce", "f32[64,128]", REDUCED, "{{0,1,2,3},{4,5,6,7}}", 2 * SIZE * 3 // 4),
        ("all-reduce", "f32[64,128]", REDUCED, "{}", 2 * SIZE * 7 // 8),
        ("all-gather", "f32[256,128]", ", dimensions={0}", "mesh['a'=2,'b'=4] {'b'}", 3 * SIZE),
        ("all-gather", "f32[128,128]", ", dimensions={0}", "mesh['a'=2,'b'=4] {'b':(1)2}", SIZE),
        ("reduce-scatter", "f32[16,128]", REDUCED + ", dimensions={0}", "[2,4]<=[8]", 24576),
        ("all-to-all", "f32[64,128]", ", dimensions={0}", "[1,8]<=[8]", SIZE * 7 // 8),
    ],
)  # fmt: skip
def test_collectives_send_what_a_ring_sends(
    opcode: str, result: str, more: str, groups: str, sent: int
) -> None:
    text = PROGRAM.format(opcode=opcode, result=result, groups=groups, more=more)
    found = module_work(hlo.parse(text), 8, MACHINES["cpu"].size_of)
    assert found == Work(0, sent)


LOOP = """HloModule m, is_scheduled=true

body {
  p = (s32[], f32[32,32]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[32,32] get-tuple-element(p), index=1
  y = f32[32,32] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[32,32]) tuple(next, y)
}

condition {
  p = (s32[], f32[32,32]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT
}

ENTRY main {
  zero = s32[] constant(0)
  x = f32[32,32] parameter(0)
  start = (s32[], f32[32,32]) tuple(zero, x)
  ROOT w = (s32[], f32[32,32]) while(start), condition=condition, body=body
}
"""


def test_loops_count_as_often_as_they_run() -> None:
    found = module_work(hlo.parse(LOOP), 1, MACHINES["cpu"].size_of)
    assert found == Work(5 * 2 * 32**3, 0)


DOT_IN_TWO = """HloModule m, is_scheduled=true

ENTRY main {
  x = bf16[2048,2,256,1] parameter(0)
  w = bf16[2,256,32,128] parameter(1)
  ROOT y = bf16[2048,32,128,1] convolution(x, w), window={size=32x2 pad=31_31x0_0 rhs_reversal=1x0}, dim_labels=b1f0_1i0o->b0f1
}
"""  # noqa: E501 - one line, as libtpu 0.0.51 prints it


def test_a_dot_that_a_tpu_writes_as_a_convolution_has_the_products_of_the_dot() -> None:
    """A projection of MaxText's attention: 2048 × 512 by 512 × 4096; its window lists 0, then 1."""
    found = module_work(hlo.parse(DOT_IN_TWO), 1, MACHINES["tpu-v5e"].size_of)
    assert found == Work(2 * 2048 * 512 * 4096, 0)
