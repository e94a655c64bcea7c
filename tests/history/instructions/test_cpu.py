"""The order in which instructions were made, and in which they list their users."""

from __future__ import annotations

from hlomem.analysis.call_graph import CallGraph
from hlomem.history.instructions.cpu import instructions_by_age, reordered_users
from hlomem.hlo.text.parser import parse

LOOP = """\
HloModule loop, is_scheduled=true

%region_0.1 (p: (s32[], f32[8], f32[8])) -> (s32[], f32[8], f32[8]) {
  %p = (s32[], f32[8]{0}, f32[8]{0}) parameter(0)
  %w = f32[8]{0} get-tuple-element(%p), index=2
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8]{0} get-tuple-element(%p), index=1
  %next = s32[] negate(%i)
  %y = f32[8]{0} add(%x, %w)
  ROOT %result = (s32[], f32[8]{0}, f32[8]{0}) tuple(%next, %y, %w)
}

%region_1.2 (q: (s32[], f32[8], f32[8])) -> pred[] {
  %q = (s32[], f32[8]{0}, f32[8]{0}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  ROOT %less = pred[] compare(%j, %j), direction=LT
}

ENTRY %main.3 (a: s32[], b: f32[8], c: f32[8]) -> (f32[8], f32[8]) {
  %a = s32[] parameter(0)
  %b = f32[8]{0} parameter(1)
  %c = f32[8]{0} parameter(2)
  %copy = f32[8]{0} copy(%b)
  %sine = f32[8]{0} sine(%b)
  %init = (s32[], f32[8]{0}, f32[8]{0}) tuple(%a, %copy, %c)
  %while = (s32[], f32[8]{0}, f32[8]{0}) while(%init), condition=%region_1.2, body=%region_0.1
  %part = f32[8]{0} get-tuple-element(%while), index=1
  ROOT %tuple = (f32[8]{0}, f32[8]{0}) tuple(%sine, %part)
}
"""


def _by_age(text: str, computation: str) -> list[str]:
    graph = CallGraph(parse(text))
    found = graph.module.computation_by_name[computation]
    return [each.name for each in instructions_by_age(found, graph)]


def _users(text: str, computation: str) -> dict[str, list[str]]:
    graph = CallGraph(parse(text))
    found = graph.module.computation_by_name[computation]
    return {
        each.name: [user.name for user in users]
        for each, users in reordered_users(found, graph).items()
    }


def test_copy_insertion_makes_the_start_of_a_loop_anew() -> None:
    assert _by_age(LOOP, "main.3")[-4:] == ["while", "part", "tuple", "init"]


def test_copy_insertion_makes_parts_and_result_of_a_body_anew() -> None:
    assert _by_age(LOOP, "region_0.1") == ["p", "next", "y", "i", "x", "w", "result"]


def test_a_result_is_made_anew_where_inputs_and_outputs_alias() -> None:
    donated = LOOP.replace(
        "is_scheduled=true", "is_scheduled=true, input_output_alias={ {1}: (1, {}, may-alias) }"
    )
    assert _by_age(donated, "main.3")[-2:] == ["init", "tuple"]


def test_parts_of_a_rewritten_loop_are_younger_than_the_result() -> None:
    rewritten = LOOP.replace("region_0.1", "region_0.1.clone")
    assert _by_age(rewritten, "main.3")[-4:] == ["tuple", "while", "part", "init"]


def test_what_reads_a_copied_value_comes_before_its_copy() -> None:
    assert _users(LOOP, "main.3") == {"b": ["sine", "copy"]}


def test_a_result_comes_before_the_one_that_reads_what_it_returns() -> None:
    assert _users(LOOP, "region_0.1") == {"w": ["result", "y"]}


ADDER = """\
HloModule adder, is_scheduled=true

%region_0.1 (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %is_equal = pred[] compare(%a, %b), direction=EQ
  %is_greater = pred[] compare(%a, %b), direction=GT
  %one = f32[] select(%is_equal, %a, %b)
  ROOT %other = f32[] select(%is_greater, %one, %b)
}

ENTRY %main.2 (x: f32[64], z: f32[]) -> f32[] {
  %x = f32[64]{0} parameter(0)
  %z = f32[] parameter(1)
  %reduce-window = f32[2]{0} reduce-window(%x, %z), window={size=32 stride=32}, to_apply=%region_0.1
  ROOT %reduce = f32[] reduce(%reduce-window, %z), dimensions={0}, to_apply=%region_0.1
}
"""


def test_an_untouched_computation_lists_users_in_post_order() -> None:
    assert _users(ADDER, "region_0.1") == {
        "a": ["is_greater", "is_equal", "one"],
        "b": ["is_greater", "is_equal", "one", "other"],
    }


def test_a_reduction_in_two_steps_comes_before_its_window() -> None:
    assert _users(ADDER, "main.2") == {"z": ["reduce", "reduce-window"]}
