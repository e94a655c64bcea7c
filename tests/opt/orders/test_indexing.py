"""Gathers and scatters: which take longer than which, on a machine whose speeds are known."""

from __future__ import annotations

from hlomem import hlo
from hlomem.machines.cpu import CPU
from hlomem.machines.machine import Machine
from hlomem.machines.registry import find_machine
from hlomem.opt.orders.cost import Times

H200 = find_machine("gpu", "h200")
TPU = find_machine("tpu", "v5e")


def _scatter(
    rows: int = 200_000,
    width: int = 64,
    targets: int = 24_000,
    kind: str = "f32",
    how: str = "add(%a, %b)",
    said: str = "",
    machine: Machine = H200,
) -> int:
    module = hlo.parse(f"""HloModule m, is_scheduled=true

%combine (a: {kind}[], b: {kind}[]) -> {kind}[] {{
  %a = {kind}[] parameter(0)
  %b = {kind}[] parameter(1)
  ROOT %c = {kind}[] {how}
}}

%fused {{
  %t = {kind}[{targets},{width}]{{1,0}} parameter(0)
  %i = s32[{rows},1]{{1,0}} parameter(1)
  %u = {kind}[{rows},1,{width}]{{2,1,0}} parameter(2)
  ROOT %r = {kind}[{targets},{width}]{{1,0}} scatter(%t, %i, %u), update_window_dims={{1,2}}, \
inserted_window_dims={{}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1{said}, \
to_apply=%combine
}}

ENTRY %e {{
  %t.1 = {kind}[{targets},{width}]{{1,0}} parameter(0)
  %i.1 = s32[{rows},1]{{1,0}} parameter(1)
  %u.1 = {kind}[{rows},1,{width}]{{2,1,0}} parameter(2)
  ROOT %f = {kind}[{targets},{width}]{{1,0}} fusion(%t.1, %i.1, %u.1), kind=kInput, calls=%fused
}}
""")
    return Times(machine).of(module.entry.root)


def test_a_scatter_of_twice_the_updates_takes_longer() -> None:
    assert _scatter(rows=400_000) > 1.8 * _scatter()


def test_a_scatter_to_few_places_takes_longer_than_one_to_many() -> None:
    assert _scatter(targets=8, width=1) > 2 * _scatter(width=1)
    assert _scatter(targets=8, width=1, machine=CPU) == _scatter(width=1, machine=CPU)


def test_short_rows_take_as_long_as_what_is_moved_together() -> None:
    assert _scatter(width=1) > 0.8 * _scatter(width=4)


def test_numbers_that_are_swapped_take_longer_than_those_that_the_memory_adds() -> None:
    added = _scatter()
    assert _scatter(how="multiply(%a, %b)") > 1.5 * added
    assert _scatter(kind="bf16") > added
    assert _scatter(kind="bf16", machine=TPU) < _scatter(machine=TPU)


def test_of_floats_the_larger_is_found_by_its_sign_before_the_memory_compares() -> None:
    larger = _scatter(how="maximum(%a, %b)")
    assert _scatter() < larger < _scatter(how="multiply(%a, %b)")
    assert _scatter(kind="s32", how="maximum(%a, %b)") == _scatter(kind="s32")


def test_the_more_swap_at_once_the_longer_each_takes() -> None:
    some, many = _scatter(targets=1000, kind="bf16"), _scatter(targets=8, kind="bf16")
    assert many > 2 * 125 * some


def test_numbers_that_meet_no_others_are_stored() -> None:
    stored = _scatter(targets=8, said=", unique_indices=true")
    assert stored < _scatter(targets=8)
    assert _scatter(targets=8, said=", indices_are_sorted=true") == stored
    assert _scatter(targets=8, how="copy(%b)") == stored
    assert _scatter(kind="bf16", said=", unique_indices=true") < _scatter(said="")


def test_adding_to_a_table_outside_of_the_cache_takes_longer() -> None:
    assert _scatter(targets=1_000_000) > 1.5 * _scatter()


def test_numbers_apart_from_each_other_are_moved_one_by_one() -> None:
    """Columns of a table, whose numbers lie in other rows."""
    text = """HloModule m, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %e {
  %t = f32[64,24000]{1,0} parameter(0)
  %i = s32[200000,1]{1,0} parameter(1)
  %u = f32[200000,64,1]{2,1,0} parameter(2)
  ROOT %r = f32[64,24000]{1,0} scatter(%t, %i, %u), update_window_dims={1,2}, \
inserted_window_dims={}, scatter_dims_to_operand_dims={1}, index_vector_dim=1, to_apply=%add
}
"""
    assert Times(H200).of(hlo.parse(text).entry.root) > 3 * _scatter()


def _gather(rows: int = 200_000, width: int = 64, table: int = 24_000, m: Machine = H200) -> int:
    """One in a fusion that adds up each row."""
    module = hlo.parse(f"""HloModule m, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}}

%fused {{
  %t = f32[{table},{width}]{{1,0}} parameter(0)
  %i = s32[{rows},1]{{1,0}} parameter(1)
  %z = f32[] constant(0)
  %g = f32[{rows},{width}]{{1,0}} gather(%t, %i), offset_dims={{1}}, collapsed_slice_dims={{0}}, \
start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{width}}}
  ROOT %r = f32[{rows}]{{0}} reduce(%g, %z), dimensions={{1}}, to_apply=%add
}}

ENTRY %e {{
  %t.1 = f32[{table},{width}]{{1,0}} parameter(0)
  %i.1 = s32[{rows},1]{{1,0}} parameter(1)
  ROOT %f = f32[{rows}]{{0}} fusion(%t.1, %i.1), kind=kInput, calls=%fused
}}
""")
    return Times(m).of(module.entry.root)


def test_rows_that_are_read_again_take_longer_than_a_table_read_once() -> None:
    assert _gather(rows=400_000, table=200_000) > 1.6 * _gather(table=200_000)
    assert _gather() > 1.2 * _gather(rows=24_000)
    assert _gather(rows=400_000, m=TPU) < 1.5 * _gather(m=TPU)


def test_of_a_larger_table_less_is_found_in_the_cache() -> None:
    times = [_gather(2_000_000, table=size) for size in (24_000, 96_000, 220_000)]
    assert 1.4 * times[0] < times[1] < times[2] / 1.4


def test_single_numbers_are_read_with_those_around_them() -> None:
    assert _gather(width=1, table=1 << 28) > 0.9 * _gather(width=8, table=1 << 25)
