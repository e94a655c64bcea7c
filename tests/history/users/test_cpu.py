"""The order in which instructions list their users after the passes of the CPU compiler."""

from __future__ import annotations

from tests.history.instructions.test_cpu import LOOP
from tests.history.orders import users


def test_what_reads_a_copied_value_comes_before_its_copy() -> None:
    assert users("cpu", LOOP, "main.3") == {"b": ["sine", "copy"]}


def test_a_result_comes_before_the_one_that_reads_what_it_returns() -> None:
    assert users("cpu", LOOP, "region_0.1") == {"w": ["result", "y"]}


ADDER = """\
HloModule adder, is_scheduled=true

%region_0.1 (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %is_equal = pred[] compare(%a, %b), direction=EQ
  %is_greater = pred[] compare(%a, %b), direction=GT
  %one = f32[] select(%is_equal, %a, %b)
  ROOT %other = f32[] select(%is_greater, %one, %b)
}

ENTRY %main.2 (x: f32[64], z: f32[]) -> f32[] {
  %x = f32[64]{0} parameter(0)
  %z = f32[] parameter(1)
  %reduce-window = f32[2]{0} reduce-window(%x, %z), window={size=32 stride=32}, to_apply=%region_0.1
  ROOT %reduce = f32[] reduce(%reduce-window, %z), dimensions={0}, to_apply=%region_0.1
}
"""


def test_an_untouched_computation_lists_users_in_post_order() -> None:
    assert users("cpu", ADDER, "region_0.1") == {
        "a": ["is_greater", "is_equal", "one"],
        "b": ["is_greater", "is_equal", "one", "other"],
    }


def test_a_reduction_in_two_steps_comes_before_its_window() -> None:
    assert users("cpu", ADDER, "main.2") == {"z": ["reduce", "reduce-window"]}
