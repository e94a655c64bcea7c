"""A loss over a large vocabulary and its gradients, small, and its region in pieces."""

from __future__ import annotations

from hlomem import hlo
from hlomem.hlo.ir import HloModule
from hlomem.hlo.text.printer import format_module
from hlomem.machines.registry import find_machine
from hlomem.opt.pieces.editor import compute_in_pieces
from hlomem.opt.pieces.region import Reach, Region, find_region

LOSS = """
HloModule loss, is_scheduled=true, entry_computation_layout={(f32[32,16]{1,0}, f32[64,16]{1,0}, s32[8,4]{1,0}, bf16[64,16]{1,0}, f32[32,64]{1,0})->(f32[64,16]{1,0}, f32[32,16]{1,0}, f32[8,4]{1,0}, f32[64]{0}, bf16[64,64]{1,0}, f32[64]{0})}

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %a_and_b = f32[] add(%a, %b)
}

%larger (c: f32[], d: f32[]) -> f32[] {
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  ROOT %larger_one = f32[] maximum(%c, %d)
}

%fused_indices (p_y: s32[8,4]) -> s32[32,3] {
  %p_y = s32[8,4]{1,0} parameter(0)
  %rows = s32[8,4,1]{2,1,0} iota(), iota_dimension=0
  %columns = s32[8,4,1]{2,1,0} iota(), iota_dimension=1
  %labels = s32[8,4,1]{2,1,0} bitcast(%p_y)
  %joined = s32[8,4,3]{2,1,0} concatenate(%rows, %columns, %labels), dimensions={2}
  ROOT %flat = s32[32,3]{1,0} bitcast(%joined)
}

%fused_softmax (p_logits: f32[32,64]) -> (f32[8,4,64], f32[8,4]) {
  %p_logits = f32[32,64]{1,0} parameter(0)
  %three = f32[8,4,64]{2,1,0} bitcast(%p_logits)
  %lowest = f32[] constant(-inf)
  %top = f32[8,4]{1,0} reduce(%three, %lowest), dimensions={2}, to_apply=%larger
  %tops = f32[8,4,64]{2,1,0} broadcast(%top), dimensions={0,1}
  %below = f32[8,4,64]{2,1,0} subtract(%three, %tops)
  %powers = f32[8,4,64]{2,1,0} exponential(%below)
  %zero = f32[] constant(0)
  %total = f32[8,4]{1,0} reduce(%powers, %zero), dimensions={2}, to_apply=%sum
  ROOT %both = (f32[8,4,64]{2,1,0}, f32[8,4]{1,0}) tuple(%powers, %total)
}

%fused_weights () -> f32[8,4,64] {
  %ramp = f32[8,4,64]{2,1,0} iota(), iota_dimension=0
  %ones = f32[] constant(1)
  %all_ones = f32[8,4,64]{2,1,0} broadcast(%ones), dimensions={}
  ROOT %weights = f32[8,4,64]{2,1,0} add(%ramp, %all_ones)
}

%fused_zeros (p_zero: f32[]) -> f32[8,4,64] {
  %p_zero = f32[] parameter(0)
  ROOT %zeros_inside = f32[8,4,64]{2,1,0} broadcast(%p_zero), dimensions={}
}

%fused_scatter (p_zeros: f32[8,4,64], p_indices: s32[32,3]) -> f32[8,4,64] {
  %p_zeros = f32[8,4,64]{2,1,0} parameter(0)
  %p_indices = s32[32,3]{1,0} parameter(1)
  %minus = f32[] constant(-1)
  %updates = f32[32,1,1,1]{3,2,1,0} broadcast(%minus), dimensions={}
  ROOT %hot = f32[8,4,64]{2,1,0} scatter(%p_zeros, %p_indices, %updates), update_window_dims={1,2,3}, inserted_window_dims={}, scatter_dims_to_operand_dims={0,1,2}, index_vector_dim=1, to_apply=%sum
}

%fused_gradient (p_hot: f32[8,4,64], p_powers: f32[8,4,64], p_total: f32[8,4], p_weights: f32[8,4,64]) -> f32[32,64] {
  %p_hot = f32[8,4,64]{2,1,0} parameter(0)
  %p_powers = f32[8,4,64]{2,1,0} parameter(1)
  %p_total = f32[8,4]{1,0} parameter(2)
  %p_weights = f32[8,4,64]{2,1,0} parameter(3)
  %totals = f32[8,4,64]{2,1,0} broadcast(%p_total), dimensions={0,1}
  %softmax = f32[8,4,64]{2,1,0} divide(%p_powers, %totals)
  %raw = f32[8,4,64]{2,1,0} add(%softmax, %p_hot)
  %weighted = f32[8,4,64]{2,1,0} multiply(%raw, %p_weights)
  ROOT %rows_of_it = f32[32,64]{1,0} bitcast(%weighted)
}

%fused_taken (q_powers: f32[8,4,64], q_indices: s32[32,3]) -> f32[8,4] {
  %q_powers = f32[8,4,64]{2,1,0} parameter(0)
  %q_indices = s32[32,3]{1,0} parameter(1)
  %picked = f32[32,1,1,1]{3,2,1,0} gather(%q_powers, %q_indices), offset_dims={1,2,3}, collapsed_slice_dims={}, start_index_map={0,1,2}, index_vector_dim=1, slice_sizes={1,1,1}
  ROOT %picked_rows = f32[8,4]{1,0} bitcast(%picked)
}

%fused_top (p_gradient: f32[32,64]) -> f32[64] {
  %p_gradient = f32[32,64]{1,0} parameter(0)
  %low = f32[] constant(-inf)
  ROOT %highest = f32[64]{0} reduce(%p_gradient, %low), dimensions={0}, to_apply=%larger
}

%fused_sum (r_gradient: f32[32,64]) -> f32[64] {
  %r_gradient = f32[32,64]{1,0} parameter(0)
  %nought = f32[] constant(0)
  ROOT %summed = f32[64]{0} reduce(%r_gradient, %nought), dimensions={0}, to_apply=%sum
}

%fused_narrow (s_gradient: f32[32,64]) -> bf16[32,64] {
  %s_gradient = f32[32,64]{1,0} parameter(0)
  ROOT %narrow = bf16[32,64]{1,0} convert(%s_gradient)
}

ENTRY %main (h: f32[32,16], e: f32[64,16], y: s32[8,4], unused: bf16[64,16], other: f32[32,64]) -> (f32[64,16], f32[32,16], f32[8,4], f32[64], bf16[64,64], f32[64]) {
  %h = f32[32,16]{1,0} parameter(0)
  %e = f32[64,16]{1,0} parameter(1)
  %y = s32[8,4]{1,0} parameter(2)
  %unused = bf16[64,16]{1,0} parameter(3)
  %other = f32[32,64]{1,0} parameter(4)
  %nothing = f32[] constant(0)
  %indices = s32[32,3]{1,0} fusion(%y), kind=kLoop, calls=%fused_indices
  %logits = f32[32,64]{1,0} dot(%h, %e), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  %softmaxes = (f32[8,4,64]{2,1,0}, f32[8,4]{1,0}) fusion(%logits), kind=kLoop, calls=%fused_softmax
  %exps = f32[8,4,64]{2,1,0} get-tuple-element(%softmaxes), index=0
  %sums = f32[8,4]{1,0} get-tuple-element(%softmaxes), index=1
  %weighing = f32[8,4,64]{2,1,0} fusion(), kind=kLoop, calls=%fused_weights
  %zeros = f32[8,4,64]{2,1,0} fusion(%nothing), kind=kLoop, calls=%fused_zeros
  %scattered = f32[8,4,64]{2,1,0} fusion(%zeros, %indices), kind=kLoop, calls=%fused_scatter
  %taken = f32[8,4]{1,0} fusion(%exps, %indices), kind=kLoop, calls=%fused_taken
  %gradient = f32[32,64]{1,0} fusion(%scattered, %exps, %sums, %weighing), kind=kLoop, calls=%fused_gradient
  %de = f32[64,16]{1,0} dot(%gradient, %h), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %dh = f32[32,16]{1,0} dot(%gradient, %e), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %tops_of_all = f32[64]{0} fusion(%gradient), kind=kLoop, calls=%fused_top
  %sums_of_all = f32[64]{0} fusion(%gradient), kind=kLoop, calls=%fused_sum
  %halves = bf16[32,64]{1,0} fusion(%gradient), kind=kLoop, calls=%fused_narrow
  %squares = bf16[64,64]{1,0} dot(%halves, %halves), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT %all = (f32[64,16]{1,0}, f32[32,16]{1,0}, f32[8,4]{1,0}, f32[64]{0}, bf16[64,64]{1,0}, f32[64]{0}) tuple(%de, %dh, %taken, %tops_of_all, %squares, %sums_of_all)
}
"""


def region_of(module: HloModule, name: str, dimension: int, least: int = 4096) -> Region | None:
    """The region that grows from a value of a CPU's program."""
    seed = module.entry.find(name)
    assert seed is not None
    return find_region(seed, dimension, Reach(module.entry), find_machine("cpu", "").size_of, least)


def loss_in_pieces(pieces: int = 4) -> tuple[HloModule, HloModule]:
    """The program, and the same with its gradient in pieces, read from its text."""
    given = hlo.parse(LOSS)
    region = region_of(given, "gradient", 0)
    assert region is not None
    made = compute_in_pieces(given, region, pieces)
    return given, hlo.parse(format_module(made))
