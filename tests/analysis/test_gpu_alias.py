"""What a GPU kernel may overwrite, after the rules of `service/gpu/alias_info.cc`."""

from __future__ import annotations

import pytest

from hlomem.analysis.gpu_alias import may_alias
from hlomem.hlo.shape import ShapeIndex
from hlomem.hlo.text.parser import parse

ADD = """\
%add (l: f32[], r: f32[]) -> f32[] {
  %l = f32[] parameter(0)
  %r = f32[] parameter(1)
  ROOT %sum = f32[] add(%l, %r)
}
"""


def _fusion(parameters: str, body: str, result: str) -> str:
    """A module that calls one fusion; shapes of parameters are separated by spaces."""
    shapes = parameters.split()
    declared = ", ".join(f"p{i}: {shape}" for i, shape in enumerate(shapes))
    inner = "\n".join(f"  %p{i} = {shape} parameter({i})" for i, shape in enumerate(shapes))
    outer = "\n".join(f"  %a{i} = {shape} parameter({i})" for i, shape in enumerate(shapes))
    operands = ", ".join(f"%a{i}" for i in range(len(shapes)))
    return f"""\
HloModule fusion, is_scheduled=true

{ADD}
%fused ({declared}) -> {result} {{
{inner}
{body}
}}

ENTRY %main ({declared.replace("p", "a")}) -> {result} {{
{outer}
  ROOT %fusion = {result} fusion({operands}), kind=kLoop, calls=%fused
}}
"""


def _may_overwrite(text: str, number: int = 0, index: tuple[int, ...] = ()) -> bool | None:
    fusion = parse(text).entry.root
    return may_alias(fusion.operands[number], fusion, ShapeIndex(index))


@pytest.mark.parametrize(
    ("parameters", "body", "result", "expected"),
    [
        ("f32[8]", "ROOT %r = f32[8] negate(%p0)", "f32[8]", True),
        ("f32[2,4]", "ROOT %r = f32[8] bitcast(%p0)", "f32[8]", True),
        ("f32[8]", "ROOT %r = f32[8] copy(%p0)", "f32[8]", False),
        ("f32[8]", "ROOT %r = f32[8] reverse(%p0), dimensions={0}", "f32[8]", False),
        ("f32[8]", "ROOT %r = f16[8] convert(%p0)", "f16[8]", False),
        ("f32[8]", "ROOT %r = s32[8] convert(%p0)", "s32[8]", True),
        ("f32[] f32[8]", "ROOT %r = f32[8] negate(%p1)", "f32[8]", False),
    ],
)
def test_every_thread_must_read_what_it_overwrites(
    parameters: str, body: str, result: str, expected: bool
) -> None:
    assert _may_overwrite(_fusion(parameters, f"  {body}", result)) is expected


@pytest.mark.parametrize(("starts", "expected"), [("%p1", True), ("%p2", False)])
def test_an_update_may_read_the_slice_it_overwrites(starts: str, expected: bool) -> None:
    body = f"""\
  %slice = f32[4] dynamic-slice(%p0, {starts}), dynamic_slice_sizes={{4}}
  %new = f32[4] negate(%slice)
  ROOT %r = f32[8] dynamic-update-slice(%p0, %new, %p1)"""
    assert _may_overwrite(_fusion("f32[8] s32[] s32[]", body, "f32[8]")) is expected


def _with_reduction(rows: int, columns: int) -> str:
    body = f"""\
  %zero = f32[] constant(0)
  %sum = f32[{rows}] reduce(%p0, %zero), dimensions={{1}}, to_apply=%add
  %twice = f32[{rows},{columns}] add(%p0, %p0)
  ROOT %r = (f32[{rows}], f32[{rows},{columns}]) tuple(%sum, %twice)"""
    return _fusion(f"f32[{rows},{columns}]", body, f"(f32[{rows}], f32[{rows},{columns}])")


@pytest.mark.parametrize(("columns", "expected"), [(64, True), (16, True), (24, False)])
def test_a_kernel_for_reductions_reads_before_it_writes(columns: int, expected: bool) -> None:
    # 24 is less than a warp and does not divide it, so the kernel is one for elements.
    assert _may_overwrite(_with_reduction(8, columns), index=(1,)) is expected


def test_a_result_that_is_written_in_another_order_forbids_sharing() -> None:
    body = """\
  %turned = f32[64,64]{1,0} transpose(%p1), dimensions={1,0}
  %one = f32[64,64]{1,0} add(%p0, %turned)
  %other = f32[64,64]{1,0} negate(%p0)
  ROOT %r = (f32[64,64]{1,0}, f32[64,64]{1,0}) tuple(%one, %other)"""
    shape = "f32[64,64]{1,0}"
    text = _fusion(f"{shape} {shape}", body, f"({shape}, {shape})")
    assert _may_overwrite(text, index=(1,)) is False
    straight = text.replace("transpose(%p1), dimensions={1,0}", "negate(%p1)")
    assert _may_overwrite(straight, index=(1,)) is True


def test_a_scatter_overwrites_what_it_scatters_into_and_nothing_else() -> None:
    body = """\
  ROOT %r = f32[8] scatter(%p0, %p1, %p2), update_window_dims={}, inserted_window_dims={0}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add"""
    text = _fusion("f32[8] s32[8,1] f32[8]", body, "f32[8]")
    assert _may_overwrite(text, 0) is True
    assert _may_overwrite(text, 2) is False


COLLECTIVE = f"""\
HloModule collective, is_scheduled=true

{ADD}
ENTRY %main (a: f32[8], b: f32[8]) -> (f32[8], f32[8]) {{
  %a = f32[8] parameter(0)
  %b = f32[8] parameter(1)
  ROOT %all = (f32[8], f32[8]) all-reduce(%a, %b), replica_groups={{}}, to_apply=%add
}}
"""


def test_an_all_reduce_overwrites_the_operand_of_the_same_number() -> None:
    assert _may_overwrite(COLLECTIVE, 0, (0,)) is True
    assert _may_overwrite(COLLECTIVE, 0, (1,)) is False


@pytest.mark.parametrize(
    ("number", "index", "beta", "expected"),
    [(2, (0,), 1, True), (2, (0,), 0, False), (1, (0,), 1, False), (2, (1,), 1, False)],
)
def test_a_product_overwrites_the_bias_it_adds(
    number: int, index: tuple[int, ...], beta: int, expected: bool
) -> None:
    config = f'{{"gemm_backend_config":{{"beta":{beta}}}}}'
    text = f"""\
HloModule product, is_scheduled=true

ENTRY %main (a: f32[4,4], b: f32[4,4], c: f32[4,4]) -> (f32[4,4], s8[64]) {{
  %a = f32[4,4] parameter(0)
  %b = f32[4,4] parameter(1)
  %c = f32[4,4] parameter(2)
  ROOT %product = (f32[4,4], s8[64]) custom-call(%a, %b, %c), \
custom_call_target="__cublas$lt$matmul", backend_config={config}
}}
"""
    assert _may_overwrite(text, number, index) is expected


def test_other_instructions_are_left_to_the_rules_of_all_backends() -> None:
    text = """\
HloModule other, is_scheduled=true

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  ROOT %n = f32[8] negate(%a)
}
"""
    assert _may_overwrite(text) is None
