"""When values are alive: numbers from the live-range dumps of jaxlib 0.12.0.1."""

from __future__ import annotations

from hlomem.analysis.live_range import FlattenedSchedule
from hlomem.hlo.text.parser import parse
from hlomem.pipeline import run_stages, start_stages
from tests.analysis.programs import DONATE_SWAP
from tests.analysis.test_dataflow import ASYNC_SLICE, LATE_OPERAND, LOOP
from tests.places import GOLDENS


def _ranges(text: str) -> dict[str, tuple[int, int]]:
    ranges = run_stages(parse(text)).live_ranges.range_of
    return {
        f"{value.instruction.name}{value.index or ''}": (start, end)
        for value, (start, end) in ranges.items()
    }


def test_a_donated_parameter_ends_at_its_last_use() -> None:
    ranges = _ranges(DONATE_SWAP)
    assert ranges["a.1"] == (0, 2)
    assert ranges["copy.2"] == (4, 7)


def test_a_parameter_that_is_not_given_away_lives_to_the_end() -> None:
    ranges = _ranges(LOOP)
    assert ranges["a"] == (0, 13)


def test_a_condition_is_flattened_before_its_body_and_both_before_the_loop() -> None:
    sequence = [each.name for each in run_stages(parse(LOOP)).live_ranges.sequence]
    expected = "a b copy init q j less p i x next result loop"
    assert sequence == expected.split()


def test_a_loop_reads_its_initial_value_when_the_body_begins() -> None:
    assert _ranges(LOOP)["copy"] == (2, 4)  # cut by the condition's carry, which takes its place


def test_the_peak_is_the_first_moment_with_most_bytes() -> None:
    # XLA counts what ends at one time still at the next.
    peak = run_stages(parse(DONATE_SWAP)).peak
    assert peak is not None
    assert peak.time == 3


def test_what_an_async_operation_runs_stands_before_it_and_lives_until_it_is_done() -> None:
    sequence = [each.name for each in run_stages(parse(ASYNC_SLICE)).live_ranges.sequence]
    assert sequence == ["a", "p", "s", "start", "done", "n"]
    ranges = _ranges(ASYNC_SLICE.replace("negate(%done)", "copy(%done)"))
    assert ranges["s"] == (3, 5)
    assert ranges["start{0}"] == (3, 4)


def test_a_value_inside_an_async_operation_lives_until_it_is_done() -> None:
    inner = """%m = f32[8]{0} negate(%p)
  ROOT %s = f32[4]{0} slice(%m)"""
    text = ASYNC_SLICE.replace("ROOT %s = f32[4]{0} slice(%p)", inner)
    assert _ranges(text)["m"] == (2, 5)


def test_what_is_wrapped_runs_when_all_operands_are_there() -> None:
    sequence = [each.name for each in run_stages(parse(LATE_OPERAND)).live_ranges.sequence]
    assert sequence == ["start", "a", "p", "s", "update", "done"]


def test_all_ranges_are_those_of_the_values_one_by_one() -> None:
    paths = sorted(GOLDENS.glob("xla/jaxlib-0.12.0.1/*/*/module.*"))[::12]
    assert any("while" in path.read_text() for path in paths)
    for path in paths:
        stages = start_stages(parse(path.read_text()))
        flattened = FlattenedSchedule(stages.dataflow, stages.schedule, stages.options)
        values = [
            value for value in stages.dataflow.values if value.instruction in flattened.time_of
        ]
        one_by_one = {value: flattened.live_range(value) for value in values}
        together = FlattenedSchedule(stages.dataflow, stages.schedule, stages.options)
        assert together.all_ranges(stages.dataflow.values) == one_by_one
