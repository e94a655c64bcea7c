"""How often loops run, by their counters as XLA says it beside them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hlomem import hlo
from hlomem.machines.cpu import CPU
from hlomem.opt.constants import MAX_TRIPS
from hlomem.opt.orders.cost import module_time
from hlomem.opt.orders.trips import count_trips, trip_count
from tests.opt.remat.scanned import SCANNED, scanned_stages

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.hlo.ir import HloInstruction, HloModule

_WRITTEN = re.compile(r'"known_trip_count":\{"n":"(\d+)"\},?')


def loops_of(module: HloModule) -> list[HloInstruction]:
    return [one for one in module.entry.instructions if one.opcode == "while"]


@pytest.mark.parametrize("path", SCANNED, ids=lambda path: path.parent.name)
def test_counters_say_what_xla_wrote(path: Path) -> None:
    loops = loops_of(scanned_stages(path).module)
    assert loops
    for loop in loops:
        written = _WRITTEN.search(loop.attribute_text)
        assert written is not None
        assert count_trips(loop) == trip_count(loop) == int(written[1])


@pytest.mark.parametrize("path", SCANNED, ids=lambda path: path.parent.name)
def test_the_time_of_a_program_does_not_depend_on_what_xla_wrote(path: Path) -> None:
    given = scanned_stages(path).module
    silent = hlo.parse(_WRITTEN.sub("", hlo.format_module(given)))
    assert module_time(silent, CPU) == module_time(given, CPU)


COUNTED = """\
HloModule m, is_scheduled=true

%body (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  %s = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[8]{0} get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %y = f32[8]{0} sine(%x)
  ROOT %t = (s32[], f32[8]{0}) tuple(%next, %y)
}

%condition (s: (s32[], f32[8])) -> pred[] {
  %s = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %end = s32[] constant(END)
  ROOT %c = pred[] compare(%i, %end), direction=LT
}

ENTRY %main (x: f32[8], n: s32[]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %n = s32[] parameter(1)
  %zero = s32[] constant(0)
  %t = (s32[], f32[8]{0}) tuple(START, %x)
  %w = (s32[], f32[8]{0}) while(%t), condition=%condition, body=%body
  ROOT %r = f32[8]{0} get-tuple-element(%w), index=1
}
"""


@pytest.mark.parametrize(
    ("start", "end", "count"),
    [("%zero", 7, 7), ("%zero", MAX_TRIPS, MAX_TRIPS), ("%zero", 10**6, None), ("%n", 7, None)],
)
def test_a_loop_is_run_through_where_its_counter_is_known(
    start: str, end: int, count: int | None
) -> None:
    [loop] = loops_of(hlo.parse(COUNTED.replace("START", start).replace("END", str(end))))
    assert count_trips(loop) == count
    assert trip_count(loop) == (count or 1)
