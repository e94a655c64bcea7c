"""Multiplications of products and convolutions, those of libraries included."""

from __future__ import annotations

import pytest

from hlomem import hlo
from hlomem.opt.orders.products import Convolution, Matrices, Part, Work, product_time, work_of
from hlomem.opt.orders.speeds import H200

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
    ("kind", "operands", "result", "part"),
    [
        ("Forward", (IMAGE, KERNEL), OUT, Part.OUT),
        ("BackwardInput", (OUT, KERNEL), IMAGE, Part.IMAGE),
        ("BackwardFilter", (IMAGE, OUT), KERNEL, Part.FILTER),
    ],
)
def test_the_gradients_of_a_convolution_have_its_products(
    kind: str, operands: tuple[str, str], result: str, part: Part
) -> None:
    call = (
        "custom-call(%p, %q), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f,"
        f' custom_call_target="__cudnn$conv{kind}"'
    )
    work = _work(f"({result}, u8[16]{{0}})", operands, call)
    features, summed = (16, 64) if part is Part.IMAGE else (64, 16)
    found = Convolution(part, features, summed, 1, 2, 9, is_dilated=False)
    assert work == Work(2 * PLACES, "f32", False, found)


def test_features_of_a_convolution_in_groups_are_those_of_a_group() -> None:
    call = (
        "custom-call(%p, %q), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f,"
        ' feature_group_count=8, custom_call_target="__cudnn$convForward"'
    )
    grouped = ("f32[8,32,32,16]{3,2,1,0}", "f32[64,3,3,2]{3,2,1,0}")
    work = _work("(f32[8,32,32,64]{3,2,1,0}, u8[16]{0})", grouped, call)
    assert work.convolution == Convolution(Part.OUT, 8, 2, 8, 2, 9, is_dilated=False)


def test_the_places_of_a_window_may_be_apart() -> None:
    call = (
        "custom-call(%p, %q), window={size=3 pad=5_5 rhs_dilate=5}, dim_labels=b0f_o0i->b0f,"
        ' custom_call_target="__cudnn$convForward"'
    )
    lines = ("f32[2,64,16]{2,1,0}", "f32[64,3,16]{2,1,0}")
    work = _work("(f32[2,64,64]{2,1,0}, u8[16]{0})", lines, call)
    assert work.convolution == Convolution(Part.OUT, 64, 16, 1, 1, 3, is_dilated=True)


@pytest.mark.parametrize(
    ("left", "right", "result", "summed", "least"),
    [
        ("[64,128]{1,0}", "[128,32]{1,0}", "[64,32]{1,0}", "{1}", 32),
        ("[8,64,128]{2,1,0}", "[8,128,512]{2,1,0}", "[8,64,512]{2,1,0}", "{2}", 64),
        ("[64,16]{1,0}", "[16,512]{1,0}", "[64,512]{1,0}", "{1}", 16),
    ],
)
def test_the_least_size_of_a_product_is_that_of_one_of_many(
    left: str, right: str, result: str, summed: str, least: int
) -> None:
    batch = "lhs_batch_dims={0}, rhs_batch_dims={0}, " if left.startswith("[8,") else ""
    rhs = "{1}" if batch else "{0}"
    call = f"dot(%p, %q), {batch}lhs_contracting_dims={summed}, rhs_contracting_dims={rhs}"
    matrices = _work(f"f32{result}", (f"f32{left}", f"f32{right}"), call).matrices
    assert matrices is not None
    assert matrices.least == least


def _time(rows: int, columns: int, terms: int) -> float:
    """Seconds of each operation of a product."""
    matrices = Matrices(1, rows, columns, terms, is_called=True)
    flops = 2 * rows * columns * terms
    return product_time(Work(flops, "f32", matrices=matrices), H200) / flops


def test_a_product_of_few_tiles_leaves_blocks_idle() -> None:
    assert _time(768, 768, 8192) > 1.5 * _time(8192, 768, 768)
    assert _time(1536, 1536, 4096) > 1.2 * _time(1408, 1536, 4096)


def test_a_library_takes_some_time_for_each_of_many_products() -> None:
    tiny = Work(2 * 512 * 65536, "bf16", matrices=Matrices(65536, 8, 8, 8, is_called=True))
    ours = tiny._replace(matrices=Matrices(65536, 8, 8, 8, is_called=False))
    assert product_time(tiny, H200) > 10 * product_time(ours, H200)


@pytest.mark.parametrize("precision", ["DEFAULT", "HIGHEST"])
def test_a_call_of_cublas_has_the_products_of_its_dot(precision: str) -> None:
    config = (
        '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]},'
        f'"precision_config":{{"operand_precision":["{precision}","{precision}"]}}}}}}'
    )
    call = f'custom-call(%p, %q), custom_call_target="__cublas$gemm", backend_config={config}'
    work = _work("(f32[64,32]{1,0}, s8[8]{0})", ("f32[64,128]{1,0}", "f32[128,32]{1,0}"), call)
    matrices = Matrices(1, 64, 32, 128, is_called=True)
    assert work == Work(2 * 64 * 32 * 128, "f32", precision == "HIGHEST", None, matrices)


def test_other_calls_have_none() -> None:
    call = 'custom-call(%p, %q), custom_call_target="f"'
    assert _work("f32[64]{0}", ("f32[64]{0}", "f32[64]{0}"), call) == Work()
