"""The order in which computations were made, from their names."""

from __future__ import annotations

import re
from functools import partial

import pytest

from hlomem.analysis.call_graph import CallGraph
from hlomem.history.computations.cpu_derived import sort_derivates
from hlomem.history.computations.creation import creation_order
from hlomem.hlo.text.parser import parse
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


def _created(text: str, *, rewrites_reductions_last: bool = False) -> list[str]:
    sort = partial(sort_derivates, rewrites_reductions_last=rewrites_reductions_last)
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

%region_0.1 (a.1: f32[], b.1: f32[]) -> f32[] {
  %a.1 = f32[] parameter(0)
  %b.1 = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%a.1, %b.1)
}

%region_0.1.clone (a.4: f32[], b.4: f32[]) -> f32[] {
  %a.4 = f32[] parameter(0)
  %b.4 = f32[] parameter(1)
  ROOT %add.4 = f32[] add(%a.4, %b.4)
}

%region_1.2 (c.1: f32[], d.1: f32[]) -> f32[] {
  %c.1 = f32[] parameter(0)
  %d.1 = f32[] parameter(1)
  ROOT %max.1 = f32[] maximum(%c.1, %d.1)
}

%region_1.2.clone (c.4: f32[], d.4: f32[]) -> f32[] {
  %c.4 = f32[] parameter(0)
  %d.4 = f32[] parameter(1)
  ROOT %max.4 = f32[] maximum(%c.4, %d.4)
}

%region_2.3.clone (e.4: f32[], f.4: f32[]) -> f32[] {
  %e.4 = f32[] parameter(0)
  %f.4 = f32[] parameter(1)
  %min.4 = f32[] minimum(%e.4, %f.4)
  %narrow = bf16[] convert(%min.4)
  ROOT %wide = f32[] convert(%narrow)
}

ENTRY %main.4 (x: f32[8], z: f32[]) -> (f32[], f32[8], f32[]) {
  %x = f32[8]{0} parameter(0)
  %z = f32[] parameter(1)
  %window.1 = f32[8]{0} reduce-window(%x, %z), window={size=1}, to_apply=%region_0.1
  %reduce.1 = f32[] reduce(%window.1, %z), dimensions={0}, to_apply=%region_0.1.clone
  %window.2 = f32[8]{0} reduce-window(%x, %z), window={size=1}, to_apply=%region_1.2
  %window.3 = f32[8]{0} reduce-window(%window.2, %z), window={size=1}, to_apply=%region_1.2.clone
  %reduce.2 = f32[] reduce(%x, %z), dimensions={0}, to_apply=%region_2.3.clone
  ROOT %tuple = (f32[], f32[8]{0}, f32[]) tuple(%reduce.1, %window.3, %reduce.2)
}
"""
OF_SUM, OF_MAXIMUM, NARROW = "region_0.1.clone", "region_1.2.clone", "region_2.3.clone"


def test_what_rewriters_share_is_cloned_last_and_by_age() -> None:
    assert _created(CLONES)[3:] == [NARROW, OF_SUM, OF_MAXIMUM]


def test_once_windows_were_rewritten_before_reductions() -> None:
    old = _created(CLONES, rewrites_reductions_last=True)
    assert old[3:] == [NARROW, OF_MAXIMUM, OF_SUM]


def test_what_the_program_calls_twice_is_cloned_first() -> None:
    """Its instructions carry metadata; what rewriters make does not."""
    own = re.sub(r"(%window.* reduce-window.*)", r'\1, metadata={op_name="f"}', CLONES)
    for last in (False, True):
        assert _created(own, rewrites_reductions_last=last)[3:] == [OF_SUM, OF_MAXIMUM, NARROW]


COMPARATOR = """\
HloModule comparator, is_scheduled=true

%compare-greater-than.1 (p: f32[], q: f32[]) -> pred[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %compare = pred[] compare(%p, %q), direction=GT
}

%while_cond.3 (param.6: (s32[])) -> pred[] {
  %param.6 = (s32[]) parameter(0)
  ROOT %false = pred[] constant(false)
}

%while_body.3 (param.7: (s32[])) -> (s32[]) {
  ROOT %param.7 = (s32[]) parameter(0)
}

%region_0.5 (u: f32[], v: f32[]) -> pred[] {
  %u = f32[] parameter(0)
  %v = f32[] parameter(1)
  ROOT %less = pred[] compare(%u, %v), direction=LT
}

ENTRY %main.9 (x: f32[8], n: s32[]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %n = s32[] parameter(1)
  %start = (s32[]) tuple(%n)
  %loop = (s32[]) while(%start), condition=%while_cond.3, body=%while_body.3
  %sort = f32[8]{0} sort(%x), dimensions={0}, to_apply=%region_0.5
  ROOT %top = f32[8]{0} sort(%sort), dimensions={0}, to_apply=%compare-greater-than.1
}
"""


def test_names_that_passes_give_are_no_programs_own_whatever_their_number() -> None:
    made = ["compare-greater-than.1", "while_cond.3", "while_body.3"]
    assert _created(COMPARATOR) == ["region_0.5", "main.9", *made]


@pytest.mark.parametrize("last", [False, True])
def test_the_comparator_that_a_custom_call_got_was_cloned_late(last: bool) -> None:
    text = COMPARATOR.replace("greater-than.1", "greater-than.1.clone")
    created = _created(text, rewrites_reductions_last=last)
    assert created[2:] == ["while_cond.3", "while_body.3", "compare-greater-than.1.clone"]


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
