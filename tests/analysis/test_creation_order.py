"""The order in which computations were made, from their names."""

from __future__ import annotations

from hlomem.analysis.call_graph import CallGraph
from hlomem.analysis.cpu_derivates import sort_derivates
from hlomem.analysis.creation_order import creation_order, sort_older_derivates
from hlomem.hlo.parser import parse
from tests.analysis.programs import CONDITIONAL


def test_regions_then_fusions_then_wrapped_instructions_as_the_program_runs() -> None:
    assert _created(CONDITIONAL) == [
        "region_0.1",
        "region_1.2",
        "main.3",
        "fused_computation",
        "fused_computation.1",
        "wrapped_convert_computation",
        "wrapped_subtract_computation",
    ]


def _created(text: str, *, is_old: bool = False) -> list[str]:
    sort = sort_older_derivates if is_old else sort_derivates
    return [each.name for each in creation_order(CallGraph(parse(text)), sort)]


WRAPPED = """\
HloModule wrapped, is_scheduled=true

%wrapped_copy_computation (param_0.9: f32[8]) -> f32[8] {
  %param_0.9 = f32[8]{0} parameter(0)
  ROOT %copy = f32[8]{0} copy(%param_0.9)
}

%wrapped_iota_computation () -> f32[8] {
  ROOT %iota = f32[8]{0} iota(), iota_dimension=0
}

%wrapped_sine_computation (param_0.7: f32[8]) -> f32[8] {
  %param_0.7 = f32[8]{0} parameter(0)
  ROOT %sine = f32[8]{0} sine(%param_0.7)
}

ENTRY %main.1 (a: f32[8]) -> (f32[8], f32[8]) {
  %a = f32[8]{0} parameter(0)
  %wrapped_copy = f32[8]{0} fusion(%a), kind=kLoop, calls=%wrapped_copy_computation
  %wrapped_iota = f32[8]{0} fusion(), kind=kLoop, calls=%wrapped_iota_computation
  %wrapped_sine = f32[8]{0} fusion(%wrapped_iota), kind=kLoop, calls=%wrapped_sine_computation
  ROOT %tuple = (f32[8]{0}, f32[8]{0}) tuple(%wrapped_copy, %wrapped_sine)
}
"""


def test_wrapped_instructions_are_numbered_by_their_parameters() -> None:
    assert _created(WRAPPED)[1:] == [
        "wrapped_iota_computation",
        "wrapped_sine_computation",
        "wrapped_copy_computation",
    ]


CLONES = """\
HloModule clones, is_scheduled=true

%region_0.1.clone (a.4: f32[], b.4: f32[]) -> f32[] {
  %a.4 = f32[] parameter(0)
  %b.4 = f32[] parameter(1)
  ROOT %add.4 = f32[] add(%a.4, %b.4)
}

%region_1.2.clone (c.4: f32[], d.4: f32[]) -> f32[] {
  %c.4 = f32[] parameter(0)
  %d.4 = f32[] parameter(1)
  ROOT %max.4 = f32[] maximum(%c.4, %d.4)
}

ENTRY %main.3 (x: f32[8], z: f32[]) -> (f32[], f32[8]) {
  %x = f32[8]{0} parameter(0)
  %z = f32[] parameter(1)
  %reduce = f32[] reduce(%x, %z), dimensions={0}, to_apply=%region_0.1.clone
  %window = f32[8]{0} reduce-window(%x, %z), window={size=1}, to_apply=%region_1.2.clone
  ROOT %tuple = (f32[], f32[8]{0}) tuple(%reduce, %window)
}
"""


def test_once_windows_were_rewritten_before_reductions() -> None:
    assert _created(CLONES)[1:] == ["region_0.1.clone", "region_1.2.clone"]
    old = _created(CLONES, is_old=True)
    assert old[1:] == ["region_1.2.clone", "region_0.1.clone"]


PARTITIONED = """\
HloModule partitioned, is_scheduled=true

%region_0.1_spmd (param.1: (s32[])) -> (s32[]) {
  ROOT %param.1 = (s32[]) parameter(0)
}

%region_1.2_spmd (param: (s32[])) -> pred[] {
  %param = (s32[]) parameter(0)
  ROOT %true = pred[] constant(true)
}

ENTRY %main.3_spmd (param.2: s32[]) -> (s32[]) {
  %param.2 = s32[] parameter(0)
  %tuple = (s32[]) tuple(%param.2)
  ROOT %while = (s32[]) while(%tuple), condition=%region_1.2_spmd, body=%region_0.1_spmd
}
"""


def test_partitioned_computations_are_numbered_by_their_parameters() -> None:
    assert _created(PARTITIONED) == ["region_1.2_spmd", "region_0.1_spmd", "main.3_spmd"]


NESTED = """\
HloModule nested, is_scheduled=true

%wide.r1.2.clone (wide.p.5: (s32[])) -> (s32[]) {
  ROOT %wide.p.5 = (s32[]) parameter(0)
}

%wide.r2.3.clone (wide.p.4: (s32[])) -> pred[] {
  %wide.p.4 = (s32[]) parameter(0)
  ROOT %true = pred[] constant(true)
}

%wide.wide.r0.1.clone (wide.wide.p.1: (s32[])) -> (s32[]) {
  %wide.wide.p.1 = (s32[]) parameter(0)
  ROOT %inner = (s32[]) while(%wide.wide.p.1), condition=%wide.r2.3.clone, body=%wide.r1.2.clone
}

%wide.wide.r3.4.clone (wide.wide.p: (s32[])) -> pred[] {
  %wide.wide.p = (s32[]) parameter(0)
  ROOT %false = pred[] constant(false)
}

ENTRY %main.5 (a: s32[]) -> (s32[]) {
  %a = s32[] parameter(0)
  %tuple = (s32[]) tuple(%a)
  ROOT %outer = (s32[]) while(%tuple), condition=%wide.wide.r3.4.clone, body=%wide.wide.r0.1.clone
}
"""


def test_inner_loops_are_rewritten_before_outer_ones() -> None:
    assert _created(NESTED) == [
        "main.5",
        "wide.r2.3.clone",
        "wide.r1.2.clone",
        "wide.wide.r3.4.clone",
        "wide.wide.r0.1.clone",
    ]
