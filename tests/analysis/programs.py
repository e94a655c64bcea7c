"""Small modules that jaxlib 0.12.0.1 compiled for CPU, less metadata, and dumped with numbers."""

from __future__ import annotations

DONATE_SWAP = """\
HloModule swap, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), \
{1}: (1, {}, may-alias) }

ENTRY %main.1 (a.1: f32[300,300], b.1: f32[300,300]) -> (f32[300,300], f32[300,300]) {
  %a.1 = f32[300,300]{1,0} parameter(0)
  %b.1 = f32[300,300]{1,0} parameter(1)
  %copy = f32[300,300]{1,0} copy(%a.1)
  %copy.1 = f32[300,300]{1,0} copy(%b.1)
  %copy.2 = f32[300,300]{1,0} copy(%copy.1), control-predecessors={%copy}
  %copy.3 = f32[300,300]{1,0} copy(%copy), control-predecessors={%copy.1}
  ROOT %tuple = (f32[300,300]{1,0}, f32[300,300]{1,0}) tuple(%copy.2, %copy.3)
}
"""

CONDITIONAL = """\
HloModule cond, is_scheduled=true

%fused_computation.1 (param_0.1: f32[128]) -> f32[128] {
  %param_0.1 = f32[128]{0} parameter(0)
  %constant.0 = f32[] constant(2)
  %broadcast.0 = f32[128]{0} broadcast(%constant.0), dimensions={}
  ROOT %mul.0 = f32[128]{0} multiply(%param_0.1, %broadcast.0)
}

%wrapped_subtract_computation (param_0.3: f32[128], param_1.3: f32[128]) -> f32[128] {
  %param_0.3 = f32[128]{0} parameter(0)
  %param_1.3 = f32[128]{0} parameter(1)
  ROOT %sub.0 = f32[128]{0} subtract(%param_0.3, %param_1.3)
}

%region_0.1 (arg_tuple.1: (f32[128], f32[128])) -> (f32[128], f32[128]) {
  %arg_tuple.1 = (f32[128]{0}, f32[128]{0}) parameter(0)
  %get-tuple-element.2 = f32[128]{0} get-tuple-element(%arg_tuple.1), index=0
  %get-tuple-element.3 = f32[128]{0} get-tuple-element(%arg_tuple.1), index=1
  %wrapped_subtract = f32[128]{0} fusion(%get-tuple-element.2, %get-tuple-element.3), kind=kLoop, \
calls=%wrapped_subtract_computation
  %multiply_fusion = f32[128]{0} fusion(%get-tuple-element.3), kind=kLoop, \
calls=%fused_computation.1
  ROOT %tuple = (f32[128]{0}, f32[128]{0}) tuple(%wrapped_subtract, %multiply_fusion)
}

%fused_computation (param_0: f32[128], param_1: f32[128]) -> f32[128] {
  %param_0 = f32[128]{0} parameter(0)
  %param_1 = f32[128]{0} parameter(1)
  ROOT %div.0 = f32[128]{0} divide(%param_0, %param_1)
}

%region_1.2 (arg_tuple.3: (f32[128], f32[128])) -> (f32[128], f32[128]) {
  %arg_tuple.3 = (f32[128]{0}, f32[128]{0}) parameter(0)
  %get-tuple-element.5 = f32[128]{0} get-tuple-element(%arg_tuple.3), index=0
  %get-tuple-element.7 = f32[128]{0} get-tuple-element(%arg_tuple.3), index=1
  %copy.3 = f32[128]{0} copy(%get-tuple-element.5)
  %ynn_fusion = f32[128]{0} fusion(%get-tuple-element.5, %get-tuple-element.7), kind=kCustom, \
calls=%fused_computation
  ROOT %tuple.2 = (f32[128]{0}, f32[128]{0}) tuple(%ynn_fusion, %copy.3)
}

%wrapped_convert_computation (param_0.2: pred[]) -> s32[] {
  %param_0.2 = pred[] parameter(0)
  ROOT %convert_element_type.0 = s32[] convert(%param_0.2)
}

ENTRY %main.3 (p.1: pred[], x.1: f32[128], y.1: f32[128]) -> (f32[128], f32[128]) {
  %p.1 = pred[] parameter(0)
  %x.1 = f32[128]{0} parameter(1)
  %y.1 = f32[128]{0} parameter(2)
  %wrapped_convert = s32[] fusion(%p.1), kind=kLoop, calls=%wrapped_convert_computation
  %cond.5 = (f32[128]{0}, f32[128]{0}) tuple(%x.1, %y.1)
  ROOT %cond.7 = (f32[128]{0}, f32[128]{0}) conditional(%wrapped_convert, %cond.5, %cond.5), \
branch_computations={%region_0.1, %region_1.2}
}
"""
"""The dump is that of the same program with f32[128,128] and a dot in place of the division."""


def comparator(name: str) -> str:
    """A computation that a sort calls."""
    return f"""
%{name} (x: f32[], y: f32[]) -> pred[] {{
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %less = pred[] compare(%x, %y), direction=LT
}}
"""
