"""Sorts and Fourier transforms: what they take beyond the bytes of their passes."""

from __future__ import annotations

from hlomem import hlo
from hlomem.machines.machine import Machine
from hlomem.machines.registry import find_machine
from hlomem.opt.orders.cost import Times

H200 = find_machine("gpu", "h200")
TPU = find_machine("tpu", "v5e")


def _time(lines: str, machine: Machine = H200) -> int:
    module = hlo.parse(f"""HloModule m, is_scheduled=true

%less (a: f32[], b: f32[]) -> pred[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = pred[] compare(%a, %b), direction=LT
}}

ENTRY %e {{
{lines}
}}
""")
    return Times(machine).of(module.entry.root)


def _by_digits(shape: str) -> int:
    return _time(f"""  %k = u32{shape} parameter(0)
  %v = f32{shape} parameter(1)
  ROOT %r = (u32{shape}, f32{shape}, u8[999]{{0}}) custom-call(%k, %v), \
custom_call_target="xla.gpu.ext.cub_sort_pairs\"""")


def test_a_library_sorts_few_elements_in_about_the_time_of_many() -> None:
    few, more, many = (_by_digits(f"[{size}]{{0}}") for size in (65536, 262144, 1 << 22))
    assert more < 1.5 * few
    assert many > 3 * few


def test_of_several_rows_a_block_of_threads_sorts_each() -> None:
    longer = _by_digits("[64,65536]{1,0}")
    assert longer > 3 * _by_digits("[64,16384]{1,0}")
    assert longer < 1.2 * _by_digits("[32,65536]{1,0}")


def test_a_short_row_takes_the_steps_of_its_network() -> None:
    def time_of(shape: str, machine: Machine = H200) -> int:
        rest = "dimensions={0}, to_apply=%less"
        return _time(f"  %p = {shape} parameter(0)\n  ROOT %r = {shape} sort(%p), {rest}", machine)

    assert time_of("f32[4096]{0}") > 3 * time_of("f32[64]{0}")
    assert time_of("f32[4096]{0}") > time_of("f32[4096]{0}", TPU)


def test_a_transform_back_goes_over_all_again() -> None:
    def time_of(kind: str, machine: Machine = H200) -> int:
        shape = "c64[4096,1024]{1,0}"
        rest = f"fft_type={kind}, fft_length={{1024}}"
        return _time(f"  %p = {shape} parameter(0)\n  ROOT %r = {shape} fft(%p), {rest}", machine)

    assert time_of("FFT") < time_of("IFFT") < time_of("IRFFT")
    assert time_of("IFFT", TPU) == time_of("FFT", TPU)
