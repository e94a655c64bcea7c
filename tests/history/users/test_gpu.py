"""The order in which instructions list their users after the passes of the GPU compiler."""

from __future__ import annotations

from tests.history.instructions.test_gpu import LOOP
from tests.history.orders import users


def _users(computation: str, text: str = LOOP) -> dict[str, list[str]]:
    return users("gpu", text, computation)


def test_parts_are_listed_as_numbered_and_those_of_a_parameter_from_the_last() -> None:
    users = _users("main.3")["loop_add_fusion"]
    assert users == ["get-tuple-element.7", "get-tuple-element.8"]
    assert _users("region_0.1")["p"] == ["get-tuple-element.6", "get-tuple-element.5"]


def test_bitcasts_are_listed_against_the_schedule() -> None:
    assert _users("region_0.1")["get-tuple-element.6"] == ["bitcast.3.0", "bitcast.7.0"]


COMPARATOR = """\
HloModule sort, is_scheduled=true

%less (l: f32[], r: f32[]) -> pred[] {
  %largest = s32[] constant(2147483647)
  %zero = s32[] constant(0)
  %r = f32[] parameter(1)
  %bitcast.2 = s32[] bitcast(%r)
  %compare.2 = pred[] compare(%bitcast.2, %zero), direction=LT
  %xor.2 = s32[] xor(%largest, %bitcast.2)
  %select.2 = s32[] select(%compare.2, %xor.2, %bitcast.2)
  %l = f32[] parameter(0)
  %bitcast.1 = s32[] bitcast(%l)
  %compare.1 = pred[] compare(%bitcast.1, %zero), direction=LT
  %xor.1 = s32[] xor(%largest, %bitcast.1)
  %select.1 = s32[] select(%compare.1, %xor.1, %bitcast.1)
  ROOT %result = pred[] compare(%select.1, %select.2), direction=LT
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %sort = f32[8]{0} sort(%a), dimensions={0}, to_apply=%less
}
"""


def test_expanded_comparisons_list_users_as_they_were_expanded() -> None:
    users = _users("less", COMPARATOR)
    assert users["bitcast.1"] == ["xor.1", "compare.1", "select.1"]
    assert users["zero"] == ["compare.2", "compare.1"]
    assert users["largest"] == ["xor.2", "xor.1"]
