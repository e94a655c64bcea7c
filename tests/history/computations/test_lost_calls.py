"""Calls that are gone, counted by what names tell."""

from __future__ import annotations

from hlomem.history.computations.cpu_passes import count_lost_calls
from tests.history.orders import traces_of

_LOOP = """\
HloModule m, is_scheduled=true

%{body} (p.1: (s32[])) -> (s32[]) {{
  ROOT %p.1 = (s32[]) parameter(0)
}}

%region_1.2 (p.2: (s32[])) -> pred[] {{
  %p.2 = (s32[]) parameter(0)
  ROOT %true = pred[] constant(true)
}}

ENTRY %main.{entry} (a.1: s32[]) -> (s32[]) {{
  %a.1 = s32[] parameter(0)
  %t = (s32[]) tuple(%a.1)
  ROOT %loop = (s32[]) while(%t), condition=%region_1.2, body=%{body}
}}
"""


def _lost(body: str, entry: int) -> int:
    return count_lost_calls(traces_of(_LOOP.format(body=body, entry=entry)))


def test_nothing_is_lost_where_all_numbers_are_there() -> None:
    assert _lost("region_0.1", entry=3) == 0


def test_a_function_that_was_inlined_was_called_and_called_others() -> None:
    assert _lost("region_0.1", entry=5) == 4


def test_a_loop_that_was_made_anew_was_called_before() -> None:
    assert _lost("wide.region_0.1.clone", entry=2) == 2
