"""Multiplications of products and convolutions, those of libraries included."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.opt.orders.products import Work, work_of

IMAGE, KERNEL, OUT = (
    "f32[8,32,32,16]{3,2,1,0}",
    "f32[64,3,3,16]{3,2,1,0}",
    "f32[8,32,32,64]{3,2,1,0}",
)
PLACES = 8 * 16 * 64 * 94 * 94
"""Of a window of three on 32 elements with one of padding: 94 pairs that meet one."""


def _work(result: str, operands: tuple[str, str], call: str) -> Work:
    left, right = operands
    module = hlo.parse(f"""HloModule m, is_scheduled=true

ENTRY %e {{
  %p = {left} parameter(0)
  %q = {right} parameter(1)
  ROOT %r = {result} {call}
}}
""")
    return work_of(module.entry.root)


@pytest.mark.parametrize(
    ("kind", "operands", "result", "features"),
    [
        ("Forward", (IMAGE, KERNEL), OUT, 64),
        ("BackwardInput", (OUT, KERNEL), IMAGE, 16),
        ("BackwardFilter", (IMAGE, OUT), KERNEL, 64),
    ],
)
def test_the_gradients_of_a_convolution_have_its_products(
    kind: str, operands: tuple[str, str], result: str, features: int
) -> None:
    call = (
        "custom-call(%p, %q), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f,"
        f' custom_call_target="__cudnn$conv{kind}"'
    )
    work = _work(f"({result}, u8[16]{{0}})", operands, call)
    assert work == Work(2 * PLACES, "f32", False, features, kind == "BackwardFilter")


@pytest.mark.parametrize("precision", ["DEFAULT", "HIGHEST"])
def test_a_call_of_cublas_has_the_products_of_its_dot(precision: str) -> None:
    config = (
        '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]},'
        f'"precision_config":{{"operand_precision":["{precision}","{precision}"]}}}}}}'
    )
    call = f'custom-call(%p, %q), custom_call_target="__cublas$gemm", backend_config={config}'
    work = _work("(f32[64,32]{1,0}, s8[8]{0})", ("f32[64,128]{1,0}", "f32[128,32]{1,0}"), call)
    assert work == Work(2 * 64 * 32 * 128, "f32", precision == "HIGHEST")


def test_other_calls_have_none() -> None:
    call = 'custom-call(%p, %q), custom_call_target="f"'
    assert _work("f32[64]{0}", ("f32[64]{0}", "f32[64]{0}"), call) == Work()
