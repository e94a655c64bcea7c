"""The order in which the GPU compiler made computations, from their names."""

from __future__ import annotations

from hlomem.analysis.call_graph import CallGraph
from hlomem.analysis.gpu_creation_order import gpu_creation_order
from hlomem.hlo.parser import parse


def _created(text: str) -> list[str]:
    return [each.name for each in gpu_creation_order(CallGraph(parse(text)))]


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


def _sums(names: str) -> str:
    """A module in which every name is that of a reduction's computation."""
    text = "HloModule sums, is_scheduled=true\n"
    for number, name in enumerate(names.split()):
        text += f"""
%{name} (l_{number}: f32[], r_{number}: f32[]) -> f32[] {{
  %l_{number} = f32[] parameter(0)
  %r_{number} = f32[] parameter(1)
  ROOT %add.{number} = f32[] add(%l_{number}, %r_{number})
}}
"""
    text += "\nENTRY %main.9 (a.1: f32[8]) -> f32[8] {\n  %a.1 = f32[8]{0} parameter(0)\n"
    text += "  %zero = f32[] constant(0)\n"
    for number, name in enumerate(names.split()):
        text += f"  %sum.{number} = f32[] reduce(%a.1, %zero), dimensions={{0}}, to_apply=%{name}\n"
    return text + "  ROOT %n = f32[8]{0} negate(%a.1)\n}\n"


def test_what_is_called_twice_is_cloned_computation_by_computation() -> None:
    names = "region_0.1 region_1.2 region_0.1.clone region_0.1.clone.1 region_1.2.clone"
    assert _created(_sums(names)) == [
        "region_0.1",
        "region_1.2",
        "main.9",
        "region_0.1.clone",
        "region_0.1.clone.1",
        "region_1.2.clone",
    ]


def test_what_a_pass_made_is_cloned_after_what_the_program_came_with() -> None:
    names = "region_0.1_rw_wrapper region_1.2 region_0.1_rw_wrapper.clone region_1.2.clone"
    assert _created(_sums(names))[-2:] == ["region_1.2.clone", "region_0.1_rw_wrapper.clone"]


def test_a_clone_of_a_clone_is_younger_than_clones_of_what_the_program_came_with() -> None:
    names = "region_0.1 region_1.2 region_0.1.clone region_0.1.clone.clone region_1.2.clone"
    assert _created(_sums(names))[-3:] == [
        "region_0.1.clone",
        "region_1.2.clone",
        "region_0.1.clone.clone",
    ]


def test_what_passes_made_is_cloned_in_the_order_it_was_made_in() -> None:
    names = "b.clone a.clone.2 a.clone.10 a.clone a b region_0.1"
    assert _created(_sums(names))[2:] == [
        "a",
        "b",
        "a.clone",
        "a.clone.2",
        "a.clone.10",
        "b.clone",
    ]


def test_a_branch_is_cloned_with_what_is_called_twice() -> None:
    branches = "".join(
        f"""
%{name} (x.{number}: f32[8]) -> f32[8] {{
  %x.{number} = f32[8]{{0}} parameter(0)
  ROOT %negate.{number} = f32[8]{{0}} negate(%x.{number})
}}
"""
        for number, name in enumerate(["region_1.2", "region_1.2.clone"])
    )
    text = _sums("region_0.1 region_3.4 region_3.4.clone region_0.1.clone")
    text = text.replace("\nENTRY", branches + "\nENTRY").replace(
        "ROOT %n = f32[8]{0} negate(%a.1)",
        "%p = pred[] constant(true)\n  ROOT %c = f32[8]{0} conditional(%p, %a.1, %a.1), "
        "true_computation=%region_1.2, false_computation=%region_1.2.clone",
    )
    assert _created(text)[-3:] == ["region_0.1.clone", "region_1.2.clone", "region_3.4.clone"]


def test_sums_of_split_products_are_younger_than_clones() -> None:
    names = "dot.reduce_sub_computation region_0.1 region_0.1.clone"
    assert _created(_sums(names))[-2:] == ["region_0.1.clone", "dot.reduce_sub_computation"]


def test_the_partitioner_made_clones_in_the_order_of_their_channels() -> None:
    text = _sums("add.1.clone region_0.1.clone region_2.3.clone")
    channels = {"add.1.clone": 7, "region_0.1.clone": 5, "region_2.3.clone": 9}
    for name, channel in channels.items():
        text = text.replace(
            f"reduce(%a.1, %zero), dimensions={{0}}, to_apply=%{name}\n",
            f"all-reduce(%zero), channel_id={channel}, replica_groups={{}}, to_apply=%{name}\n",
        )
    assert _created(text)[-3:] == ["region_0.1.clone", "add.1.clone", "region_2.3.clone"]


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


def _comparator(name: str) -> str:
    return f"""
%{name} (x: f32[], y: f32[]) -> pred[] {{
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %less = pred[] compare(%x, %y), direction=LT
}}
"""


def test_comparators_of_stable_sorts_are_made_between_rewriters_and_flattening() -> None:
    text = _sums("region_0.1 region_0.1_rw_wrapper region_0.1.clone")
    comparators = ["region_5.6.clone", "region_5.6.clone.clone"]
    text = text.replace("\nENTRY", "".join(map(_comparator, comparators)) + "\nENTRY")
    for name in comparators:
        sort = f"  %s.{name} = f32[8]{{0}} sort(%a.1), dimensions={{0}}, to_apply=%{name}\n"
        text = text.replace("  ROOT %n =", sort + "  ROOT %n =")
    assert _created(text)[-4:] == [
        "region_0.1_rw_wrapper",
        "region_5.6.clone",
        "region_0.1.clone",
        "region_5.6.clone.clone",
    ]


def test_sorts_are_fused_with_indices_before_all_else_is_fused() -> None:
    sorts = (
        _comparator("region_4.5")
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
