"""The model of time: what is hidden behind work costs nothing, what is not, its rest."""

from __future__ import annotations

from hlomem import hlo
from hlomem.machines.cpu import CPU
from hlomem.machines.machine import Machine
from hlomem.machines.registry import find_machine
from hlomem.opt.constants import TRANSFER_FACTOR
from hlomem.opt.orders.cost import Delays, Times
from hlomem.opt.orders.flow import FlowBuilder
from hlomem.pipeline import in_text_order, start_stages

H200 = find_machine("gpu", "h200")
TEXT = """HloModule m, is_scheduled=true

ENTRY %e {
  %p = f32[1024] parameter(0)
  %q = f32[8192] parameter(1)
  %s = (f32[1024], f32[1024]) collective-permute-start(%p), source_target_pairs={{0,1}}
  %work = f32[8192] negate(%q)
  %d = f32[1024] collective-permute-done(%s)
  ROOT %t = (f32[1024], f32[8192]) tuple(%d, %work)
}
"""
WORK = 2 * 8192 * 4


def test_work_between_start_and_end_hides_a_transfer() -> None:
    stages = start_stages(hlo.parse(TEXT), order_lists=in_text_order)
    builder = FlowBuilder(stages, keeps_overlap=False)
    flow = builder.build(stages.module.entry, {})
    delays = Delays(flow.nodes, stages.options.machine)
    assert delays.total == WORK
    transfer = TRANSFER_FACTOR * 4096
    assert delays.of([0, 1, 2, 3, 4, 5]) == max(0, transfer - WORK) == 0
    assert delays.of([0, 1, 2, 4, 3, 5]) == transfer


def _time_of(operation: str) -> int:
    text = f"""HloModule m, is_scheduled=true

ENTRY %e {{
  %p = f32[64,128] parameter(0)
  %q = f32[128,256] parameter(1)
  ROOT %r = {operation}
}}
"""
    stages = start_stages(hlo.parse(text), order_lists=in_text_order)
    flow = FlowBuilder(stages, keeps_overlap=False).build(stages.module.entry, {})
    return Delays(flow.nodes, stages.options.machine).total


def test_a_product_takes_the_time_of_its_bytes_or_of_its_multiplications() -> None:
    shape = "f32[64,256]"
    moved = 4 * (64 * 128 + 128 * 256 + 64 * 256)
    dot = _time_of(f"{shape} dot(%p, %q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}")
    assert dot == max(moved, 2 * 128 * 64 * 256 // CPU.flops_per_byte)
    kernel = _time_of(f"{shape} convolution(%p, %q), dim_labels=bf_io->bf")
    assert kernel == max(moved, 2 * 64 * 256 * 128 * 256 // 256 // CPU.flops_per_byte)


def _entry_time(text: str) -> int:
    stages = start_stages(hlo.parse(text), order_lists=in_text_order)
    times = Times(stages.options.machine)
    return sum(map(times.of, stages.module.entry.instructions))


def _fused(body: str, operands: str, shape: str, nested: str = "") -> int:
    return _entry_time(f"""HloModule m, is_scheduled=true
{nested}
%fused {{
{body}
}}

ENTRY %e {{
  %stack = f32[16,1024] parameter(0)
  %slice = f32[1,1024] parameter(1)
  %place = s32[] parameter(2)
  ROOT %f = {shape} fusion({operands}), kind=kLoop, calls=%fused
}}
""")


def test_a_fusion_that_reads_a_slice_of_a_stack_moves_the_slice() -> None:
    body = """  %p = f32[16,1024] parameter(0)
  %i = s32[] parameter(1)
  %z = s32[] constant(0)
  %d = f32[1,1024] dynamic-slice(%p, %i, %z), dynamic_slice_sizes={1,1024}
  ROOT %n = f32[1,1024] negate(%d)"""
    assert _fused(body, "%stack, %place", "f32[1,1024]") == 2 * 4096 + 4


def test_a_fusion_that_writes_a_slice_into_a_stack_moves_the_slice() -> None:
    body = """  %p = f32[16,1024] parameter(0)
  %u = f32[1,1024] parameter(1)
  %i = s32[] parameter(2)
  %z = s32[] constant(0)
  %n = f32[1,1024] negate(%u)
  ROOT %d = f32[16,1024] dynamic-update-slice(%p, %n, %i, %z)"""
    assert _fused(body, "%stack, %slice, %place", "f32[16,1024]") == 2 * 4096 + 4


READS = """
%reads {
  %q = f32[16,1024] parameter(0)
  %j = s32[] parameter(1)
  %y = s32[] constant(0)
  ROOT %e = f32[1,1024] dynamic-slice(%q, %j, %y), dynamic_slice_sizes={1,1024}
}
"""
WRITES = """
%writes {
  %q = f32[16,1024] parameter(0)
  %v = f32[1,1024] parameter(1)
  %j = s32[] parameter(2)
  %y = s32[] constant(0)
  ROOT %e = f32[16,1024] dynamic-update-slice(%q, %v, %j, %y)
}
"""


def test_slices_within_nested_fusions_are_all_that_is_moved() -> None:
    body = """  %p = f32[16,1024] parameter(0)
  %i = s32[] parameter(1)
  %d = f32[1,1024] fusion(%p, %i), kind=kLoop, calls=%reads
  ROOT %n = f32[1,1024] negate(%d)"""
    assert _fused(body, "%stack, %place", "f32[1,1024]", READS) == 2 * 4096 + 4
    body = """  %p = f32[16,1024] parameter(0)
  %u = f32[1,1024] parameter(1)
  %i = s32[] parameter(2)
  %n = f32[1,1024] negate(%u)
  ROOT %d = f32[16,1024] fusion(%p, %n, %i), kind=kLoop, calls=%writes"""
    assert _fused(body, "%stack, %slice, %place", "f32[16,1024]", WRITES) == 2 * 4096 + 4


def test_a_fusion_that_reads_all_of_a_stack_as_well_moves_it() -> None:
    body = """  %p = f32[16,1024] parameter(0)
  %i = s32[] parameter(1)
  %z = s32[] constant(0)
  %d = f32[1,1024] dynamic-slice(%p, %i, %z), dynamic_slice_sizes={1,1024}
  ROOT %b = (f32[1,1024], f32[16,1024]) tuple(%d, %p)"""
    shape = "(f32[1,1024], f32[16,1024])"
    assert _fused(body, "%stack, %place", shape) == 2 * 16 * 4096 + 4096 + 4


def test_a_product_within_a_fusion_takes_the_time_of_its_multiplications() -> None:
    text = """HloModule m, is_scheduled=true

%fused {
  %p = f32[512,4096] parameter(0)
  %q = f32[4096,512] parameter(1)
  %d = f32[512,512] dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %n = f32[512,512] negate(%d)
}

ENTRY %e {
  %a = f32[512,4096] parameter(0)
  %b = f32[4096,512] parameter(1)
  ROOT %f = f32[512,512] fusion(%a, %b), kind=kOutput, calls=%fused
}
"""
    moved = 4 * (2 * 512 * 4096 + 512 * 512)
    assert _entry_time(text) == max(moved, 2 * 4096 * 512 * 512 // CPU.flops_per_byte)


LOOP = """HloModule m, is_scheduled=true

%body {
  %s = (s32[], f32[1024]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[1024] get-tuple-element(%s), index=1
  %y = f32[1024] negate(%x)
  ROOT %t = (s32[], f32[1024]) tuple(%i, %y)
}

%condition {
  %s.1 = (s32[], f32[1024]) parameter(0)
  %i.1 = s32[] get-tuple-element(%s.1), index=0
  %n = s32[] constant(7)
  ROOT %c = pred[] compare(%i.1, %n), direction=LT
}

ENTRY %e {
  %p = (s32[], f32[1024]) parameter(0)
  ROOT %w = (s32[], f32[1024]) while(%p), condition=%condition, body=%body, CONFIG
}
"""


def test_a_loop_takes_the_time_of_its_body_as_often_as_it_is_known_to_run() -> None:
    once = 2 * 4096 + 4 + 4 + 1
    known = 'backend_config={"known_trip_count":{"n":"7"}}'
    assert _entry_time(LOOP.replace("CONFIG", known)) == 7 * once
    assert _entry_time(LOOP.replace(", CONFIG", "")) == once


def test_a_loop_that_the_host_asks_about_takes_longer_than_one_it_counts() -> None:
    def time_of(config: str) -> int:
        return Times(H200).of(hlo.parse(LOOP.replace(", CONFIG", config)).entry.root)

    once = time_of(', backend_config={"known_trip_count":{"n":"1"}}')
    assert time_of("") > once
    assert time_of(', backend_config={"known_trip_count":{"n":"100"}}') == 100 * once


def _pass(kernels: int) -> int:
    """The time of a pass of so many small kernels."""
    steps = "\n".join(
        f"  %y.{place} = f32[1024] negate(%{'x' if not place else f'y.{place - 1}'})"
        for place in range(kernels)
    )
    text = LOOP.replace("  %y = f32[1024] negate(%x)", steps).replace("%y)", f"%y.{kernels - 1})")
    config = ', backend_config={"known_trip_count":{"n":"100"}}'
    return Times(H200).of(hlo.parse(text.replace(", CONFIG", config)).entry.root) // 100


def test_kernels_of_a_loop_are_started_one_by_one_where_they_are_too_few_for_a_graph() -> None:
    assert _pass(4) == 4 * _pass(1)
    assert _pass(5) < 0.6 * _pass(4)
    assert _pass(10) == 2 * _pass(5)


BRANCHES = """HloModule m, is_scheduled=true

%short {
  ROOT %a = f32[1024] parameter(0)
}

%long {
  %b = f32[1024] parameter(0)
  ROOT %n = f32[1024] negate(%b)
}

ENTRY %e {
  %i = s32[] parameter(0)
  %p = f32[1024] parameter(1)
  ROOT %c = f32[1024] conditional(%i, %p, %p), branch_computations={%short, %long}
}
"""


def test_of_branches_the_longest_counts() -> None:
    assert _entry_time(BRANCHES) == 2 * 4096


def test_a_branch_waits_for_what_decides_it() -> None:
    conditional = hlo.parse(BRANCHES).entry.root
    _, long = conditional.called_computations
    assert Times(H200).of(conditional) > 3 * Times(H200).of(long.root)


def test_a_sort_goes_over_its_rows_as_often_as_they_halve() -> None:
    def time_of(length: int) -> int:
        shape = f"f32[4,{length}]{{1,0}}"
        module = hlo.parse(f"""HloModule m, is_scheduled=true

%less (a: f32[], b: f32[]) -> pred[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = pred[] compare(%a, %b), direction=LT
}}

ENTRY %e {{
  %p = {shape} parameter(0)
  ROOT %r = {shape} sort(%p), dimensions={{1}}, to_apply=%less
}}
""")
        return Times(CPU).of(module.entry.root)

    assert time_of(1024) == 10 * 2 * 4 * 1024 * 4
    assert time_of(4096) == 12 * 2 * 4 * 4096 * 4


def _of(lines: str, machine: Machine) -> int:
    module = hlo.parse(f"HloModule m, is_scheduled=true\n\nENTRY %e {{\n{lines}\n}}\n")
    return Times(machine).of(module.entry.root)


def test_a_fourier_transform_goes_over_all_once_for_every_dimension() -> None:
    shape = "c64[4,32,32]{2,1,0}"
    head = f"  %p = {shape} parameter(0)\n  ROOT %r = {shape} fft(%p), fft_type=FFT, fft_length="
    assert _of(head + "{32}", CPU) == 2 * 4 * 32 * 32 * 8
    assert _of(head + "{32,32}", CPU) == 2 * 2 * 4 * 32 * 32 * 8


def test_a_sort_by_digits_goes_over_keys_and_values_several_times() -> None:
    lines = """  %k = u32[1024]{0} parameter(0)
  %v = f32[1024]{0} parameter(1)
  ROOT %r = (u32[1024]{0}, f32[1024]{0}, u8[999]{0}) custom-call(%k, %v)"""
    other = f'{lines}, custom_call_target="other"'
    by_digits = f'{lines}, custom_call_target="xla.gpu.ext.cub_sort_pairs"'
    assert _of(by_digits, CPU) - _of(other, CPU) == 7 * 2 * 8192


def test_a_scatter_of_narrow_numbers_takes_longer_where_that_was_measured() -> None:
    dimensions = (
        "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},"
        " index_vector_dim=1"
    )

    def time_of(kind: str, machine: Machine) -> int:
        module = hlo.parse(f"""HloModule m, is_scheduled=true

%add (a: {kind}[], b: {kind}[]) -> {kind}[] {{
  %a = {kind}[] parameter(0)
  %b = {kind}[] parameter(1)
  ROOT %c = {kind}[] add(%a, %b)
}}

ENTRY %e {{
  %t = {kind}[64,1024]{{1,0}} parameter(0)
  %i = s32[65536,1]{{1,0}} parameter(1)
  %u = {kind}[65536,1024]{{1,0}} parameter(2)
  ROOT %r = {kind}[64,1024]{{1,0}} scatter(%t, %i, %u), {dimensions}, to_apply=%add
}}
""")
        return Times(machine).of(module.entry.root)

    assert time_of("bf16", CPU) < time_of("f32", CPU)
    assert time_of("bf16", H200) > 1.5 * time_of("f32", H200)


def _decomposed(target: str, shape: str = "f32[8,120,120]{2,1,0}") -> int:
    lines = f"  %p = {shape} parameter(0)\n  ROOT %r = {shape}"
    return _of(f'{lines} custom-call(%p), custom_call_target="{target}"', H200)


def test_a_decomposition_goes_from_column_to_column() -> None:
    assert _decomposed("cusolver_potrf_ffi") > 20 * _decomposed("other")
    assert _decomposed("cusolver_gesvdj_ffi") > 10 * _decomposed("cusolver_potrf_ffi")
    few = _decomposed("cusolver_potrf_ffi", "f32[120,120]{1,0}")
    assert few == _decomposed("cusolver_potrf_ffi")


def test_of_many_matrices_a_block_of_threads_decomposes_each() -> None:
    one = _decomposed("cusolver_geqrf_ffi", "f32[120,120]{1,0}")
    assert _decomposed("cusolver_geqrf_ffi") > 10 * one
    assert _decomposed("cusolver_geqrf_ffi") == _decomposed(
        "cusolver_geqrf_ffi", "f32[64,120,120]{2,1,0}"
    )
