"""Fusions that take longer to compute than to move their bytes."""

from __future__ import annotations

from hlomem import hlo
from hlomem.machines.machine import Machine
from hlomem.machines.registry import find_machine
from hlomem.opt.orders.cost import Times

H200 = find_machine("gpu", "h200")
TPU = find_machine("tpu", "v5e")


def _time(body: str, given: str, made: str, machine: Machine = H200) -> int:
    module = hlo.parse(f"""HloModule m, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}}

%fused {{
  %p = {given} parameter(0)
  %z = f32[] constant(0)
{body}
}}

ENTRY %e {{
  %p.1 = {given} parameter(0)
  ROOT %f = {made} fusion(%p.1), kind=kLoop, calls=%fused
}}
""")
    return Times(machine).of(module.entry.root)


def _mixed(rounds: int, machine: Machine = H200) -> int:
    shape = "u32[1048576]{0}"
    lines = [f"  %x.0 = {shape} negate(%p)"]
    lines += [f"  %x.{place} = {shape} xor(%x.{place - 1}, %p)" for place in range(1, rounds)]
    lines += [f"  ROOT %r = {shape} negate(%x.{rounds - 1})"]
    return _time("\n".join(lines), shape, shape, machine)


def test_many_operations_on_each_number_take_longer_than_its_bytes() -> None:
    assert _mixed(10) == _mixed(2)
    assert _mixed(300) > 2 * _mixed(10)
    assert _mixed(300, TPU) == _mixed(10, TPU)


def test_narrow_results_take_as_long_as_wide_ones() -> None:
    def time_of(kind: str) -> int:
        body = f"  ROOT %r = {kind}[16777216]{{0}} broadcast(%p), dimensions={{}}"
        return _time(body, f"{kind}[]", f"{kind}[16777216]{{0}}")

    assert time_of("bf16") > 0.8 * time_of("f32")


def test_places_of_a_window_are_read_one_by_one() -> None:
    def time_of(size: int) -> int:
        shape = "f32[65536,64]{1,0}"
        window = f"window={{size=1x{size} pad=0_0x{size - 1}_0}}, to_apply=%add"
        return _time(f"  ROOT %r = {shape} reduce-window(%p, %z), {window}", shape, shape)

    assert time_of(64) > 3 * time_of(16) > 3 * time_of(2)


def test_columns_are_summed_term_by_term_and_rows_at_once() -> None:
    def time_of(dimension: int) -> int:
        body = f"  ROOT %r = f32[512]{{0}} reduce(%p, %z), dimensions={{{dimension}}}"
        return _time(f"{body}, to_apply=%add", "f32[512,512]{1,0}", "f32[512]{0}")

    def of_many_rows() -> int:
        body = "  ROOT %r = f32[64]{0} reduce(%p, %z), dimensions={0}, to_apply=%add"
        return _time(body, "f32[4096,64]{1,0}", "f32[64]{0}")

    assert time_of(0) >= time_of(1)
    assert of_many_rows() > 2 * time_of(1)
