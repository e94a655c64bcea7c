"""Live ranges of another order are those found anew, whether few instructions move or most."""

from __future__ import annotations

import pytest

from hlomem.analysis.live_range import analyze_live_ranges
from hlomem.analysis.moved_ranges import find_dependents, move_live_ranges
from hlomem.hlo.schedule import Schedule
from hlomem.hlo.text.parser import parse
from hlomem.pipeline import Stages, run_stages
from tests.assign.programs import module_of

CHAIN = [f"%n{number} = f32[64]{{0}} negate(%{'a' if not number else 'b'})" for number in range(12)]
PROGRAM = module_of(
    *CHAIN,
    "ROOT %all = (f32[64]{0}) tuple(%n0)",
)


def _stages() -> Stages:
    return run_stages(parse(PROGRAM))


@pytest.mark.parametrize("distance", [1, 2, 11], ids=["neighbours", "two apart", "most of all"])
def test_moved_ranges_are_those_found_anew(distance: int) -> None:
    stages = _stages()
    entry = stages.module.entry
    order = list(entry.instructions)
    order.insert(2 + distance, order.pop(2))
    schedule = Schedule({entry: order})
    moved = move_live_ranges(
        stages.live_ranges,
        find_dependents(stages.dataflow, stages.aliasing),
        stages.dataflow,
        stages.aliasing,
        schedule,
        stages.options,
    )
    anew = analyze_live_ranges(stages.dataflow, stages.aliasing, schedule, stages.options)
    assert [each.name for each in moved.sequence] == [each.name for each in order]
    assert moved.range_of == anew.range_of
    assert moved.range_of != stages.live_ranges.range_of


def test_a_value_depends_on_whoever_defines_reads_or_hands_it_on() -> None:
    stages = _stages()
    values_at = find_dependents(stages.dataflow, stages.aliasing).values_at
    named = {
        instruction.name: {value.instruction.name for value in values}
        for instruction, values in values_at.items()
    }
    assert named["a"] == {"a"}
    assert named["n0"] == {"a", "n0"}
    assert named["all"] == {"n0", "all"}
