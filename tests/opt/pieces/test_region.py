"""Regions have what large values need, and nothing that mixes what is cut."""

from __future__ import annotations

import json
import re

import pytest

from hlomem import hlo
from hlomem.hlo.dimension_links import Share
from hlomem.hlo.ir import HloModule
from hlomem.hlo.text.printer import format_module
from hlomem.machines.registry import find_machine
from hlomem.opt.checks.pieces import find_piece_problems
from hlomem.opt.pieces.editor import compute_in_pieces
from hlomem.opt.pieces.region import Reach, find_region
from tests.opt.pieces.programs import LOSS, region_of


def test_a_region_holds_all_large_values_and_hands_out_the_rest() -> None:
    module = hlo.parse(LOSS)
    region = region_of(module, "gradient", 0)
    assert region is not None
    assert {one.name for one in region.internal} >= {"logits", "exps", "gradient", "scattered"}
    results = {one.name: region.cut[one] for one in region.results}
    assert results["dh"] == results["taken"] == 0
    assert results["de"] == results["sums_of_all"] == Share("add")
    assert results["tops_of_all"] == Share("maximum")
    assert region.pieces == 8
    assert {one.name for one in region.inputs} == {"h", "e", "indices"}


def test_a_softmax_is_not_cut_along_what_it_sums_over() -> None:
    module = hlo.parse(LOSS)
    region = region_of(module, "exps", 2)
    assert region is None or module.entry.find("softmaxes") not in region.solved


def _call(name: str, shape: str, operands: str, contracted: tuple[int, int], strides: str) -> str:
    """A product by cuBLAS, as XLA:GPU writes one that was tuned."""
    numbers = {
        "lhs_contracting_dimensions": [str(contracted[0])],
        "rhs_contracting_dimensions": [str(contracted[1])],
        "lhs_batch_dimensions": [],
        "rhs_batch_dimensions": [],
    }
    lhs, rhs = strides.split()
    config = {
        "selected_algorithm": "7",
        "alpha_real": 1,
        "beta": 0,
        "dot_dimension_numbers": numbers,
        "epilogue": "DEFAULT",
        "lhs_stride": lhs,
        "rhs_stride": rhs,
    }
    text = json.dumps({"operation_queue_id": "0", "gemm_backend_config": config})
    made = f"%{name} = ({shape}, s8[4096]{{0}}) custom-call({operands})"
    target = 'custom_call_target="__cublas$lt$matmul"'
    return f"  {made}, {target}, backend_config={text.replace(' ', '')}"


def _cublas() -> HloModule:
    lines = [
        "HloModule products, is_scheduled=true",
        "ENTRY %main {",
        "  %x = f32[512,64]{1,0} parameter(0)",
        "  %w = f32[64,256]{1,0} parameter(1)",
        _call("first", "f32[512,256]{1,0}", "%x, %w", (1, 0), "32768 16384"),
        "  %logits = f32[512,256]{1,0} get-tuple-element(%first), index=0",
        _call("second", "f32[256,64]{1,0}", "%logits, %x", (0, 0), "131072 32768"),
        "  ROOT %sums = f32[256,64]{1,0} get-tuple-element(%second), index=0",
        "}",
    ]
    return hlo.parse("\n".join(lines))


@pytest.mark.parametrize("pieces", [2, 4])
def test_a_library_call_of_another_size_takes_no_tuned_algorithm(pieces: int) -> None:
    module = _cublas()
    seed = module.entry.find("logits")
    assert seed is not None
    size_of = find_machine("gpu", "h100").size_of
    region = find_region(seed, 0, Reach(module.entry), size_of, 1 << 18)
    assert region is not None
    made = compute_in_pieces(module, region, pieces)
    assert not find_piece_problems(module, made)
    [body] = [one for one in made.computations if one.name.startswith("pieces.")]
    calls = [one for one in body.instructions if one.opcode == "custom-call"]
    assert len(calls) == 2
    for call in calls:
        config = json.loads(call.attributes["backend_config"])["gemm_backend_config"]
        assert config["selected_algorithm"] == "0"
        for side, operand in zip(("lhs", "rhs"), call.operands, strict=True):
            rows, columns = operand.shape.dimensions
            assert int(config[f"{side}_stride"]) == rows * columns


@pytest.mark.parametrize(
    "setting", ['"selected_algorithm":"7"', '"alpha_real":2', '"lhs_stride":"1"']
)
def test_other_settings_of_a_library_call_are_refused(setting: str) -> None:
    module = _cublas()
    seed = module.entry.find("logits")
    assert seed is not None
    region = find_region(seed, 0, Reach(module.entry), find_machine("gpu", "h100").size_of, 1 << 18)
    assert region is not None
    text = format_module(compute_in_pieces(module, region, 2))
    name = setting.partition(":")[0]
    wrong = re.sub(rf'{name}:("?)-?\d+"?', setting, text, count=1)
    assert wrong != text
    assert find_piece_problems(module, hlo.parse(wrong))
