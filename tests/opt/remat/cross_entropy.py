# ruff: noqa: E501 - lines of HLO
"""A step of a cross entropy as a GPU's compiler leaves it: a product of a library with a workspace,
a one-hot scatter, and the loop that makes the gradient of the logits."""

from __future__ import annotations

from hlomem import hlo
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release
from hlomem.pipeline import Stages, in_text_order, start_stages

ROWS, WORDS = (64, 32), 512
_LOGITS = f"f32[64,32,{WORDS}]"
_ROWS = "f32[64,32]"

_BODIES = f"""HloModule step, is_scheduled=true

%sum (x: f32[], y: f32[]) -> f32[] {{
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}}

%made_of_nothing () -> {_LOGITS} {{
  %zero = f32[] constant(0)
  ROOT %wide = {_LOGITS}{{2,1,0}} broadcast(%zero), dimensions={{}}
}}

%scattered (zeros: {_LOGITS}, labels: s32[64,32], weights: {_ROWS}) -> {_LOGITS} {{
  %zeros = {_LOGITS}{{2,1,0}} parameter(0)
  %labels = s32[64,32]{{1,0}} parameter(1)
  %weights = {_ROWS}{{1,0}} parameter(2)
  %row = s32[64,32,1]{{2,1,0}} iota(), iota_dimension=0
  %place = s32[64,32,1]{{2,1,0}} iota(), iota_dimension=1
  %label = s32[64,32,1]{{2,1,0}} bitcast(%labels)
  %all = s32[64,32,3]{{2,1,0}} concatenate(%row, %place, %label), dimensions={{2}}
  %indices = s32[2048,3]{{1,0}} bitcast(%all)
  %updates = f32[2048,1,1,1]{{3,2,1,0}} bitcast(%weights)
  ROOT %scatter = {_LOGITS}{{2,1,0}} scatter(%zeros, %indices, %updates), update_window_dims={{1,2,3}}, inserted_window_dims={{}}, scatter_dims_to_operand_dims={{0,1,2}}, index_vector_dim=1, to_apply=%sum
}}

%gradient (hot: {_LOGITS}, logits: f32[2048,{WORDS}], scale: {_ROWS}) -> {_LOGITS} {{
  %hot = {_LOGITS}{{2,1,0}} parameter(0)
  %logits = f32[2048,{WORDS}]{{1,0}} parameter(1)
  %viewed = {_LOGITS}{{2,1,0}} bitcast(%logits)
  %shares = {_LOGITS}{{2,1,0}} exponential(%viewed)
  %scale = {_ROWS}{{1,0}} parameter(2)
  %scales = {_LOGITS}{{2,1,0}} broadcast(%scale), dimensions={{0,1}}
  %scaled = {_LOGITS}{{2,1,0}} multiply(%shares, %scales)
  ROOT %all_of_it = {_LOGITS}{{2,1,0}} add(%hot, %scaled)
}}

"""
TEXT = f"""{_BODIES}ENTRY %main (x: f32[2048,64], w: f32[64,{WORDS}], labels: s32[64,32], weights: {_ROWS}) -> f32[64,{WORDS}] {{
  %x = f32[2048,64]{{1,0}} parameter(0)
  %w = f32[64,{WORDS}]{{1,0}} parameter(1)
  %labels.1 = s32[64,32]{{1,0}} parameter(2)
  %weights.1 = {_ROWS}{{1,0}} parameter(3)
  %product = (f32[2048,{WORDS}]{{1,0}}, s8[1024]{{0}}) custom-call(%x, %w), custom_call_target="__cublas$gemm"
  %made = f32[2048,{WORDS}]{{1,0}} get-tuple-element(%product), index=0
  %nothing = {_LOGITS}{{2,1,0}} fusion(), kind=kLoop, calls=%made_of_nothing
  %hot.1 = {_LOGITS}{{2,1,0}} fusion(%nothing, %labels.1, %weights.1), kind=kInput, calls=%scattered
  %grad = {_LOGITS}{{2,1,0}} fusion(%hot.1, %made, %weights.1), kind=kLoop, calls=%gradient
  %rows = f32[2048,{WORDS}]{{1,0}} bitcast(%grad)
  %back = (f32[64,{WORDS}]{{1,0}}, s8[1024]{{0}}) custom-call(%x, %rows), custom_call_target="__cublas$gemm"
  ROOT %result = f32[64,{WORDS}]{{1,0}} get-tuple-element(%back), index=0
}}
"""
GRADIENT = f"""{_BODIES}ENTRY %main (made: f32[2048,{WORDS}], labels: s32[64,32], weights: {_ROWS}) -> {_LOGITS} {{
  %made = f32[2048,{WORDS}]{{1,0}} parameter(0)
  %labels.1 = s32[64,32]{{1,0}} parameter(1)
  %weights.1 = {_ROWS}{{1,0}} parameter(2)
  %nothing = {_LOGITS}{{2,1,0}} fusion(), kind=kLoop, calls=%made_of_nothing
  %hot.1 = {_LOGITS}{{2,1,0}} fusion(%nothing, %labels.1, %weights.1), kind=kInput, calls=%scattered
  ROOT %grad = {_LOGITS}{{2,1,0}} fusion(%hot.1, %made, %weights.1), kind=kLoop, calls=%gradient
}}
"""
"""The same without products, for a machine that has no such library."""
SIZE = 4 * 64 * 32 * WORDS
"""Bytes of the logits."""


def stages_of_step(text: str = TEXT, platform: str = "gpu", chip: str = "h200") -> Stages:
    options = options_for(find_machine(platform, chip), Release("jaxlib", (0, 11, 2)))
    return start_stages(hlo.parse(text), options, order_lists=in_text_order)
