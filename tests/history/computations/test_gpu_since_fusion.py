"""The order in which the GPU compiler made computations, from their names."""

from __future__ import annotations

from tests.analysis.programs import comparator
from tests.history.orders import created_names


def _created(text: str) -> list[str]:
    return created_names("gpu", text)


BRANCHES = """\
HloModule branches, is_scheduled=true

%fused_negate (param_0.4: f32[8]) -> f32[8] {
  %param_0.4 = f32[8]{0} parameter(0)
  ROOT %negate.1 = f32[8]{0} negate(%param_0.4)
}

%fused_iota () -> f32[8] {
  ROOT %iota.1 = f32[8]{0} iota(), iota_dimension=0
}

%region_0.1 (x.1: f32[8]) -> f32[8] {
  %x.1 = f32[8]{0} parameter(0)
  ROOT %loop_negate_fusion = f32[8]{0} fusion(%x.1), kind=kLoop, calls=%fused_negate
}

%fused_sine (param_0.7: f32[8], param_1: f32[8]) -> f32[8] {
  %param_0.7 = f32[8]{0} parameter(0)
  %param_1 = f32[8]{0} parameter(1)
  %add.1 = f32[8]{0} add(%param_0.7, %param_1)
  ROOT %sine.1 = f32[8]{0} sine(%add.1)
}

%gemm_fusion_dot_computation (parameter_0: f32[8]) -> f32[8] {
  %parameter_0 = f32[8]{0} parameter(0)
  ROOT %exp.1 = f32[8]{0} exponential(%parameter_0)
}

%region_1.2 (y.1: f32[8]) -> f32[8] {
  %y.1 = f32[8]{0} parameter(0)
  %loop_iota_fusion = f32[8]{0} fusion(), kind=kLoop, calls=%fused_iota
  ROOT %loop_sine_fusion = f32[8]{0} fusion(%y.1, %loop_iota_fusion), kind=kLoop, calls=%fused_sine
}

%wrapped_cosine_computation (param_0.9: f32[8]) -> f32[8] {
  %param_0.9 = f32[8]{0} parameter(0)
  ROOT %cosine.1 = f32[8]{0} cosine(%param_0.9)
}

%fused_negate.clone (param_0.11: f32[8]) -> f32[8] {
  %param_0.11 = f32[8]{0} parameter(0)
  ROOT %negate.2 = f32[8]{0} negate(%param_0.11)
}

%async_computation (param_0.12: f32[8]) -> f32[8] {
  %param_0.12 = f32[8]{0} parameter(0)
  ROOT %loop_negate_fusion.1 = f32[8]{0} fusion(%param_0.12), kind=kLoop, calls=%fused_negate.clone
}

ENTRY %main.3 (i.1: pred[], a.1: f32[8]) -> f32[8] {
  %i.1 = pred[] parameter(0)
  %a.1 = f32[8]{0} parameter(1)
  %gemm_fusion_dot = f32[8]{0} fusion(%a.1), kind=kCustom, calls=%gemm_fusion_dot_computation
  %cond.1 = f32[8]{0} conditional(%i.1, %gemm_fusion_dot, %a.1), true_computation=%region_1.2, \
false_computation=%region_0.1
  %wrapped_cosine = f32[8]{0} fusion(%cond.1), kind=kLoop, calls=%wrapped_cosine_computation
  %fusion-start = ((f32[8]{0}), f32[8]{0}) async-start(%wrapped_cosine), calls=%async_computation
  ROOT %fusion-done = f32[8]{0} async-done(%fusion-start)
}
"""


def test_parameters_number_all_that_was_made_since_fusion() -> None:
    assert _created(BRANCHES) == [
        "region_0.1",
        "region_1.2",
        "main.3",
        "gemm_fusion_dot_computation",
        "fused_negate",
        "fused_sine",
        "fused_iota",  # has no parameter: with the others of its caller
        "wrapped_cosine_computation",
        "fused_negate.clone",
        "async_computation",
    ]


def test_computations_are_fused_in_the_order_that_times_tell() -> None:
    text = BRANCHES.replace("param_0.4", "param_0.8").replace("%fused_iota", "%fused_ones")
    text = text.replace(
        "  ROOT %loop_negate_fusion =",
        "  %loop_iota_fusion.1 = f32[8]{0} "
        "fusion(), kind=kLoop, calls=%fused_iota\n  ROOT %loop_negate_fusion =",
    )
    body = "%fused_iota () -> f32[8] {\n  ROOT %iota.2 = f32[8]{0} iota(), iota_dimension=0\n}\n\n"
    text = text.replace("%region_0.1 (", body + "%region_0.1 (")
    assert _created(text)[4:8] == ["fused_sine", "fused_ones", "fused_negate", "fused_iota"]


def test_names_tell_when_computations_were_fused_where_no_time_does() -> None:
    begin, end = BRANCHES.index("%fused_sine ("), BRANCHES.index("%gemm_fusion_dot_computation (")
    text = BRANCHES[:begin] + BRANCHES[end:]
    call = text.index("  ROOT %loop_sine_fusion =")
    text = text[:call] + "  ROOT %abs.1 = f32[8]{0} abs(%y.1)" + text[text.index("\n", call) :]
    assert _created(text)[4:6] == ["fused_negate", "fused_iota"]
    renamed = text.replace("%fused_negate ", "%fused_iota.1 ").replace(
        "calls=%fused_negate\n", "calls=%fused_iota.1\n"
    )
    assert _created(renamed)[4:6] == ["fused_iota", "fused_iota.1"]


def test_a_rematerialized_body_without_parameters_comes_last() -> None:
    assert _created(BRANCHES.replace("loop_iota_fusion", "loop_iota_fusion.remat"))[-1] == (
        "fused_iota"
    )


def test_a_body_that_took_another_in_is_as_old_as_its_neighbours() -> None:
    grown = """\
%fused_sine (param_0.8: f32[8], param_1: f32[8]) -> (f32[8], f32[8]) {
  %param_0.8 = f32[8]{0} parameter(0)
  %param_1 = f32[8]{0} parameter(1)
  %add.1.clone.1 = f32[8]{0} add(%param_0.8, %param_1)
  %sine.1 = f32[8]{0} sine(%add.1.clone.1)
  %tanh.1 = f32[8]{0} tanh(%sine.1)
  ROOT %tuple.1 = (f32[8]{0}, f32[8]{0}) tuple(%tanh.1, %add.1.clone.1)
}
"""
    begin = BRANCHES.index("%fused_sine (")
    text = BRANCHES[:begin] + grown + BRANCHES[BRANCHES.index("\n%gemm_fusion_dot_computation (") :]
    text = text.replace("param_0.9", "param_0.5").replace(
        "  ROOT %loop_sine_fusion = f32[8]{0} fusion",
        "  %loop_sine_fusion = (f32[8]{0}, f32[8]{0}) fusion",
    )
    text = text.replace(
        "calls=%fused_sine\n",
        "calls=%fused_sine\n  ROOT %part = f32[8]{0} get-tuple-element(%loop_sine_fusion), "
        "index=0\n",
    )
    order = _created(text)
    assert order.index("fused_sine") < order.index("wrapped_cosine_computation")
    single = text.replace("%tanh.1 = f32[8]{0} tanh(%sine.1)", "").replace("(%tanh.1,", "(%sine.1,")
    order = _created(single.replace("\n  \n", "\n"))
    assert order.index("wrapped_cosine_computation") < order.index("fused_sine")


def test_transfers_to_the_host_are_older_than_fusions() -> None:
    text = BRANCHES.replace("param_0.12", "param_0.1")
    assert _created(text)[-6:] == [
        "async_computation",
        "fused_negate",
        "fused_sine",
        "fused_iota",
        "wrapped_cosine_computation",
        "fused_negate.clone",
    ]


def test_a_body_cloned_for_an_asynchronous_computation_is_not_as_old_as_those_around_it() -> None:
    text = BRANCHES.replace("%fused_negate.clone", "%wrapped_negate_computation.clone")
    text = text.replace("%fused_iota", "%wrapped_iota_computation")
    begin = text.index("  %wrapped_cosine =")
    text = f"""{text[:begin]}\
  %fusion-start = ((f32[8]{{0}}), f32[8]{{0}}) async-start(%cond.1), calls=%async_computation
  %fusion-done = f32[8]{{0}} async-done(%fusion-start)
  ROOT %wrapped_cosine = f32[8]{{0}} fusion(%fusion-done), kind=kLoop, \
calls=%wrapped_cosine_computation
}}
"""
    assert _created(text)[-4:] == [
        "wrapped_iota_computation",
        "wrapped_cosine_computation",
        "wrapped_negate_computation.clone",
        "async_computation",
    ]


def test_sorts_are_fused_with_indices_before_all_else_is_fused() -> None:
    sorts = (
        comparator("region_4.5")
        + """
%fused_computation (param_0: f32[8]) -> (f32[8], f32[8]) {
  %param_0 = f32[8]{0} parameter(0)
  %iota.2 = f32[8]{0} iota(), iota_dimension=0
  ROOT %sort.1 = (f32[8]{0}, f32[8]{0}) sort(%param_0, %iota.2), dimensions={0}, \
to_apply=%region_4.5
}

%fused_constant () -> f32[8] {
  ROOT %iota.3 = f32[8]{0} iota(), iota_dimension=0
}
"""
    )
    text = BRANCHES.replace("\nENTRY", sorts + "\nENTRY").replace(
        "  %wrapped_cosine = ",
        "  %fusion.1 = (f32[8]{0}, f32[8]{0}) fusion(%a.1), kind=kCustom, "
        "calls=%fused_computation\n"
        "  %loop_constant_fusion = f32[8]{0} fusion(), kind=kLoop, calls=%fused_constant\n"
        "  %wrapped_cosine = ",
    )
    assert _created(text)[5:-3] == [
        "fused_computation",
        "fused_negate",
        "fused_sine",
        "fused_iota",
        "fused_constant",  # of the caller that is gone through last
    ]
