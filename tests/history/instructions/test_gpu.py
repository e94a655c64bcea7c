"""The order in which the GPU compiler made instructions, from their names."""

from __future__ import annotations

from tests.history.orders import listed

LOOP = """\
HloModule loop, is_scheduled=true

%fused_add (param_0: f32[8]) -> (f32[8], f32[8]) {
  %param_0 = f32[8]{0} parameter(0)
  %add.1 = f32[8]{0} add(%param_0, %param_0)
  %sine.1 = f32[8]{0} sine(%param_0)
  ROOT %tuple.9 = (f32[8]{0}, f32[8]{0}) tuple(%add.1, %sine.1)
}

%region_0.1 (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]{0}) parameter(0)
  %get-tuple-element.6 = f32[8]{0} get-tuple-element(%p), index=1
  %get-tuple-element.5 = s32[] get-tuple-element(%p), index=0
  %bitcast.7.0 = f32[8]{0} bitcast(%get-tuple-element.6)
  %bitcast.3.0 = f32[8]{0} bitcast(%get-tuple-element.6)
  %y = f32[8]{0} add(%bitcast.7.0, %bitcast.3.0)
  ROOT %tuple.4 = (s32[], f32[8]{0}) tuple(%get-tuple-element.5, %y)
}

%region_1.2 (q: (s32[], f32[8])) -> pred[] {
  %q = (s32[], f32[8]{0}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  ROOT %less = pred[] compare(%j, %j), direction=LT
}

%async_computation (r: f32[8]) -> f32[4] {
  %r = f32[8]{0} parameter(0)
  ROOT %slice.1 = f32[4]{0} slice(%r), slice={[0:4]}
}

ENTRY %main.3 (a: s32[], b: f32[8]) -> (f32[8], f32[8], f32[4]) {
  %a = s32[] parameter(0)
  %b = f32[8]{0} parameter(1)
  %loop_add_fusion = (f32[8]{0}, f32[8]{0}) fusion(%b), kind=kLoop, calls=%fused_add
  %get-tuple-element.8 = f32[8]{0} get-tuple-element(%loop_add_fusion), index=1
  %get-tuple-element.7 = f32[8]{0} get-tuple-element(%loop_add_fusion), index=0
  %fusion-start = ((f32[8]{0}), f32[4]{0}) async-start(%b), calls=%async_computation
  %fusion-done = f32[4]{0} async-done(%fusion-start)
  %tuple.2 = (s32[], f32[8]{0}) tuple(%a, %get-tuple-element.7)
  %while.1 = (s32[], f32[8]{0}) while(%tuple.2), condition=%region_1.2, body=%region_0.1
  %while.2.0 = f32[8]{0} get-tuple-element(%while.1), index=1
  ROOT %tuple.1.0 = (f32[8]{0}, f32[8]{0}, f32[4]{0}) tuple(%while.2.0, %get-tuple-element.8, \
%fusion-done)
}
"""


def _by_age(computation: str) -> list[str]:
    return listed("gpu", LOOP, computation)


def test_what_has_the_suffix_is_older_than_what_fusion_and_copy_insertion_made() -> None:
    assert _by_age("main.3")[3:] == [
        "while.1",
        "while.2.0",
        "tuple.1.0",
        "get-tuple-element.8",
        "get-tuple-element.7",
        "tuple.2",
        "fusion-start",
        "fusion-done",
    ]


def test_bitcasts_are_numbered_and_the_parts_of_a_loop_come_after_them() -> None:
    names = [name for name in _by_age("region_0.1") if name not in ("p", "y")]
    assert names == [
        "bitcast.3.0",
        "bitcast.7.0",
        "get-tuple-element.5",
        "get-tuple-element.6",
        "tuple.4",
    ]
