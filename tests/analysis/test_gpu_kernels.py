"""Which instruction a GPU kernel is built around, after `service/gpu/hlo_fusion_analysis.cc`."""

from __future__ import annotations

import pytest

from hlomem.analysis.gpu_kernels import analyze_fusion
from hlomem.hlo.text.parser import parse

MODULE = """\
HloModule fusion, is_scheduled=true

%add (l: {type}[], q: {type}[]) -> {type}[] {{
  %l = {type}[] parameter(0)
  %q = {type}[] parameter(1)
  ROOT %sum = {type}[] add(%l, %q)
}}

%fused (p: {shape}) -> {result} {{
  %p = {shape} parameter(0)
  %zero = {type}[] constant(0)
{body}
}}

ENTRY %main (a: {shape}) -> {result} {{
  %a = {shape} parameter(0)
  ROOT %fusion = {result} fusion(%a), kind=kInput, calls=%fused{config}
}}
"""


def _analyze(shape: str, result: str, body: str, config: str = "") -> tuple[list[str], str | None]:
    text = MODULE.format(
        type=shape.partition("[")[0], shape=shape, result=result, body=body, config=config
    )
    analysis = analyze_fusion(parse(text).entry.root)
    reduction = analysis.reduction
    return [hero.name for hero in analysis.heroes], reduction.name if reduction else None


@pytest.mark.parametrize(
    ("shape", "dimension", "is_kernel"),
    [
        ("f32[8,64]{1,0}", 1, True),  # a row as long as a warp
        ("f32[8,24]{1,0}", 1, False),  # a short one that does not fill a warp
        ("f32[8,8]{1,0}", 1, True),  # four of them do
        ("f32[64,64]{1,0}", 0, True),  # columns
        ("f32[16,64]{1,0}", 0, False),  # of too few elements
        ("f32[64,2]{1,0}", 0, False),  # too few columns
    ],
)
def test_a_reduction_has_a_kernel_of_its_own_if_that_is_faster(
    shape: str, dimension: int, is_kernel: bool
) -> None:
    kept = shape[4:].partition("]")[0].split(",")[1 - dimension]
    body = f"  ROOT %r = f32[{kept}] reduce(%p, %zero), dimensions={{{dimension}}}, to_apply=%add"
    assert _analyze(shape, f"f32[{kept}]", body)[1] == ("r" if is_kernel else None)


def test_the_hero_is_found_behind_elementwise_instructions() -> None:
    body = """\
  %r = f32[8] reduce(%p, %zero), dimensions={1}, to_apply=%add
  %n = f32[8] negate(%r)
  ROOT %b = f32[8,1] bitcast(%n)"""
    assert _analyze("f32[8,64]{1,0}", "f32[8,1]", body) == (["r"], "r")


def test_a_kernel_that_the_configuration_names_is_none_for_reductions() -> None:
    body = "  ROOT %r = f32[8] reduce(%p, %zero), dimensions={1}, to_apply=%add"
    config = ', backend_config={"fusion_backend_config":{"kind":"__triton"}}'
    assert _analyze("f32[8,64]{1,0}", "f32[8]", body, config)[1] is None


@pytest.mark.parametrize(
    ("shape", "dimensions", "result", "is_tiled"),
    [
        ("f32[32,64]{1,0}", "1,0", "f32[64,32]{1,0}", True),
        ("f32[4,64]{1,0}", "1,0", "f32[64,4]{1,0}", False),
        ("f32[32,1,64]{2,1,0}", "2,1,0", "f32[64,1,32]{2,1,0}", True),
        ("f32[32,64,2]{2,1,0}", "1,0,2", "f32[64,32,2]{2,1,0}", True),
        ("f32[32,64,4]{2,1,0}", "1,0,2", "f32[64,32,4]{2,1,0}", False),
        ("bf16[64,64]{1,0}", "1,0", "bf16[64,64]{1,0}", True),
        ("f32[32,64]{0,1}", "1,0", "f32[64,32]{1,0}", False),
    ],
)
def test_a_transpose_is_a_hero_if_it_goes_through_shared_memory(
    shape: str, dimensions: str, result: str, is_tiled: bool
) -> None:
    body = f"""\
  %t = {result} transpose(%p), dimensions={{{dimensions}}}
  ROOT %n = {result} negate(%t)"""
    assert _analyze(shape, result, body)[0] == (["t"] if is_tiled else ["n"])


@pytest.mark.parametrize(
    ("shape", "dimensions", "kept", "is_kernel"),
    [
        ("f32[4,64,2]{2,1,0}", "1", "4,2", False),  # columns in between, too few of them
        ("f32[4,64,8]{2,1,0}", "1", "4,8", True),
        ("f32[8,4,64]{2,1,0}", "0,2", "4", True),  # a row in two pieces around what is kept
        ("f32[4,8,4,64]{3,2,1,0}", "0,2", "8,64", False),  # neither side in one piece
        ("f32[1,64]{1,0}", "1", "1", True),  # nothing is kept but a one
    ],
)
def test_dimensions_that_lie_together_count_as_one(
    shape: str, dimensions: str, kept: str, is_kernel: bool
) -> None:
    body = f"  ROOT %r = f32[{kept}] reduce(%p, %zero), dimensions={{{dimensions}}}, to_apply=%add"
    assert _analyze(shape, f"f32[{kept}]", body)[1] == ("r" if is_kernel else None)


def test_of_two_heroes_above_one_root_none_is_chosen() -> None:
    body = """\
  %r = f32[8] reduce(%p, %zero), dimensions={1}, to_apply=%add
  %s = f32[8] reduce(%p, %zero), dimensions={1}, to_apply=%add
  ROOT %b = f32[8] multiply(%r, %s)"""
    assert _analyze("f32[8,64]{1,0}", "f32[8]", body) == (["b"], None)


@pytest.mark.parametrize(("other", "is_shared"), [("{1}", True), ("{0}", False)])
def test_reductions_of_one_kernel_reduce_alike(other: str, is_shared: bool) -> None:
    body = f"""\
  %r = f32[64] reduce(%p, %zero), dimensions={{1}}, to_apply=%add
  %s = f32[64] reduce(%p, %zero), dimensions={other}, to_apply=%add
  ROOT %t = (f32[64], f32[64]) tuple(%r, %s)"""
    assert (_analyze("f32[64,64]{1,0}", "(f32[64], f32[64])", body)[1] is not None) == is_shared
