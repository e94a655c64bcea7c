"""The order in which the CPU compiler made computations, from their names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.machines.options import Options
from tests.analysis.programs import CONDITIONAL
from tests.history.orders import created_names, traces_of


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
    options = Options(rewrites_reductions_last=rewrites_reductions_last)
    return created_names("cpu", text, options)


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


CONVERTS = "_converts"  # says what the body does; no part of the name
REDUCERS = (
    "region_2.9.clone",  # the program called a function twice
    "region_1.5.clone_converts",
    "scalar_add_computation",
    "and.reduce_sub_computation",
    "region_0.1.clone",  # of one that reduces windows first
    "scalar_add_computation.clone",
)
"""Names of what passes derived, the oldest first."""


def _module(reducers: list[str]) -> str:
    """A program that applies the reducers in this order, and two of its own."""
    lines = ["HloModule derived, is_scheduled=true", ""]
    names = ["region_0.1", "region_2.9", *reducers]
    for n, name in enumerate(names):
        result = f"convert(%p{n})" if name.endswith(CONVERTS) else f"add(%p{n}, %q{n})"
        lines += [
            f"%{name.removesuffix(CONVERTS)} (p{n}: f32[], q{n}: f32[]) -> f32[] {{",
            f"  %p{n} = f32[] parameter(0)",
            f"  %q{n} = f32[] parameter(1)",
            f"  ROOT %r.{n} = f32[] {result}",
            "}",
            "",
        ]
    lines += [
        "ENTRY %main.3 (x: f32[8], z: f32[]) -> f32[8] {",
        "  %x = f32[8]{0} parameter(0)",
        "  %z = f32[] parameter(1)",
        "  %w = f32[8]{0} reduce-window(%x, %z), window={size=1}, to_apply=%region_0.1",
        "  %u = f32[] reduce(%w, %z), dimensions={0}, to_apply=%region_2.9",
    ]
    lines += [
        f"  %c.{number} = f32[] reduce(%x, %z), dimensions={{0}},"
        f" to_apply=%{name.removesuffix(CONVERTS)}"
        for number, name in enumerate(reducers)
    ]
    lines += ["  ROOT %result = f32[8]{0} copy(%w)", "}", ""]
    return "\n".join(lines)


@given(st.permutations(REDUCERS))
def test_passes_made_them_in_the_order_of_the_pipeline(reducers: list[str]) -> None:
    own = ["region_0.1", "main.3", "region_2.9"]
    derived = [name.removesuffix(CONVERTS) for name in REDUCERS]
    assert _created(_module(list(reducers))) == own + derived


def _chain_of_clones(length: int) -> str:
    """A partitioned program of reductions with two results, each cloned from the one before."""
    names = ["region_0.1" + ".clone.1" * count for count in range(length)]
    lines = ["HloModule chain, is_scheduled=true", ""]
    for n, name in enumerate(names):
        lines += [
            f"%{name} (a{n}: f32[], b{n}: f32[], c{n}: f32[], d{n}: f32[]) -> (f32[], f32[]) {{",
            *(f"  %{each}{n} = f32[] parameter({i})" for i, each in enumerate("abcd")),
            f"  ROOT %t{n} = (f32[], f32[]) tuple(%a{n}, %b{n})",
            "}",
            "",
        ]
    lines += [
        "ENTRY %main.9_spmd (x: f32[8], z: f32[]) -> f32[8] {",
        "  %x = f32[8]{0} parameter(0)",
        "  %z = f32[] parameter(1)",
    ]
    lines += [
        f"  %r.{n} = (f32[], f32[]) reduce(%x, %x, %z, %z), dimensions={{0}}, to_apply=%{name}"
        for n, name in enumerate(names)
    ]
    return "\n".join([*lines, "  ROOT %n = f32[8]{0} negate(%x)", "}", ""])


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_a_long_chain_of_clones_is_sorted(platform: str) -> None:
    text = _chain_of_clones(600)
    assert sorted(created_names(platform, text)) == sorted(traces_of(text).by_name)


SCATTER_IN_FUSIONS = """\
HloModule nested, is_scheduled=true

%region_0.1.clone (l: f32[], r: f32[]) -> f32[] {
  %l = f32[] parameter(0)
  %r = f32[] parameter(1)
  ROOT %sum = f32[] add(%l, %r)
}

%inner (p.1: f32[8], i.1: s32[1,1], u.1: f32[1]) -> f32[8] {
  %p.1 = f32[8]{0} parameter(0)
  %i.1 = s32[1,1]{1,0} parameter(1)
  %u.1 = f32[1]{0} parameter(2)
  ROOT %scatter = f32[8]{0} scatter(%p.1, %i.1, %u.1), update_window_dims={}, \
inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, \
to_apply=%region_0.1.clone
}

%outer (p.2: f32[8], i.2: s32[1,1], u.2: f32[1]) -> f32[8] {
  %p.2 = f32[8]{0} parameter(0)
  %i.2 = s32[1,1]{1,0} parameter(1)
  %u.2 = f32[1]{0} parameter(2)
  ROOT %in = f32[8]{0} fusion(%p.2, %i.2, %u.2), kind=kLoop, calls=%inner
}

ENTRY %main.9_spmd (p: f32[8], i: s32[1,1], u: f32[1]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %i = s32[1,1]{1,0} parameter(1)
  %u = f32[1]{0} parameter(2)
  ROOT %out = f32[8]{0} fusion(%p, %i, %u), kind=kLoop, calls=%outer
}
"""


def test_a_call_deep_in_fusions_has_a_place() -> None:
    assert _created(SCATTER_IN_FUSIONS)[:2] == ["main.9_spmd", "region_0.1.clone"]
