"""The model of time held to training steps that were run on an H200."""

from __future__ import annotations

import base64
import json
import statistics
import zlib
from pathlib import Path

import pytest

from hlomem import hlo
from hlomem.hlo.ir import HloModule
from hlomem.machines.registry import find_machine
from hlomem.opt.orders.cost import Times, module_time
from hlomem.opt.orders.speeds import H100, H200, speeds_of
from hlomem.proto.module import read_module

MEASURED = Path(__file__).parent / "measured"
STEPS = json.loads((MEASURED / "h200.json").read_text())["steps"]
PROGRAMS = json.loads((MEASURED / "h200_kernels.json").read_text())["programs"]
MACHINE = find_machine("gpu", "h200")
MOST = 1.35
"""How far the model may be off."""


def _module(row: dict[str, str]) -> HloModule:
    return read_module(zlib.decompress(base64.b85decode(row["module"])))


def _modelled(step: dict[str, str]) -> float:
    return module_time(_module(step), MACHINE) / H200.bandwidth


@pytest.fixture(scope="module")
def times() -> list[tuple[float, float]]:
    """Seconds by the model, and measured."""
    return [(_modelled(step), step["seconds"]) for step in STEPS]


def test_no_step_is_far_from_the_clock(times: list[tuple[float, float]]) -> None:
    for step, (modelled, measured) in zip(STEPS, times, strict=True):
        assert 1 / MOST < modelled / measured < MOST, (step["name"], step["way"])


def _rank_correlation(times: list[tuple[float, float]]) -> float:
    modelled, measured = (
        [sorted(column).index(one) for one in column] for column in zip(*times, strict=True)
    )
    return statistics.correlation(modelled, measured)


def test_steps_rank_as_they_do_by_the_clock(times: list[tuple[float, float]]) -> None:
    assert _rank_correlation(times) >= 0.9


def test_kernels_take_about_as_long_as_they_do_by_the_clock() -> None:
    """Convolutions, products, scatters and sorts by themselves."""
    clock = Times(MACHINE)
    times = [
        (clock.of(instruction) / H200.bandwidth, program["seconds"][instruction.name])
        for program in PROGRAMS
        for instruction in _module(program).entry.instructions
        if instruction.name in program["seconds"]
    ]
    assert len(times) > 300
    assert _rank_correlation(times) >= 0.93
    off = sorted(max(modelled / measured, measured / modelled) for modelled, measured in times)
    assert off[len(off) * 9 // 10] < 2.2
    assert off[-1] < 6.0


def test_what_is_recomputed_takes_longer_by_about_as_much(
    times: list[tuple[float, float]],
) -> None:
    at = {(step["name"], step["way"]): pair for step, pair in zip(STEPS, times, strict=True)}
    for name, way in (("unet_train", "half"), ("lstm_train", "optimize")):
        modelled, measured = (
            changed / given for changed, given in zip(at[name, way], at[name, "plain"], strict=True)
        )
        assert abs(modelled - measured) < 0.05


def _time_of(line: str, machine: str = "h200", platform: str = "gpu") -> float:
    text = f"""HloModule m, is_scheduled=true

ENTRY %e {{
  %p = bf16[8192,8192]{{1,0}} parameter(0)
  ROOT %r = {line}
}}
"""
    found = find_machine(platform, machine)
    speeds = speeds_of(found)
    assert speeds is not None
    return Times(found).of(hlo.parse(text).entry.root) / speeds.bandwidth


def test_a_large_product_takes_its_operations_and_a_copy_its_bytes() -> None:
    dot = "bf16[8192,8192]{1,0} dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert _time_of(dot) == pytest.approx(1.43e-3, rel=0.1)
    assert _time_of(dot, "h100") == pytest.approx(_time_of(dot), rel=0.1)
    copy = "bf16[8192,8192]{0,1} copy(%p)"
    assert _time_of(copy) == pytest.approx(2 * 2 * 8192 * 8192 / H200.bandwidth, rel=0.05)
    assert _time_of(copy, "h100") > 1.3 * _time_of(copy)


def test_speeds_are_those_of_the_chip_else_of_its_platform() -> None:
    assert speeds_of(find_machine("gpu", "h100")) == H100
    assert speeds_of(find_machine("gpu")) == H200
    assert speeds_of(find_machine("cpu")) is None


def test_a_tpu_takes_as_long_as_its_data_sheet_says() -> None:
    dot = "bf16[8192,8192]{1,0} dot(%p, %p), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    exact = f"{dot}, operand_precision={{highest,highest}}"
    copy = "bf16[8192,8192]{0,1} copy(%p)"
    assert _time_of(dot, "v5e", "tpu") == pytest.approx(2 * 8192**3 / 197e12, rel=0.001)
    assert _time_of(dot, "v6e", "tpu") == pytest.approx(2 * 8192**3 / 918e12, rel=0.001)
    assert _time_of(exact, "v5e", "tpu") == _time_of(dot, "v5e", "tpu")  # bfloat16 is no float32
    assert _time_of(copy, "v5e", "tpu") == pytest.approx(2 * 2 * 8192**2 / 819e9, rel=0.001)
    tpu = speeds_of(find_machine("tpu", "v5e"))
    assert tpu is not None
    assert not tpu.is_measured
    assert H200.is_measured
