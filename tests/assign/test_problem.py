"""The order in which buffers are looked at: `BufferAssigner::AssignBuffersForComputations`."""

from __future__ import annotations

from hlomem.machines.options import Options
from tests.assign.programs import buffer_named, module_of, state

TEXT = module_of(
    "%small = f32[8]{0} slice(%a), slice={[0:8]}",
    "%large = f32[128]{0} concatenate(%a, %b), dimensions={0}",
    "%late = f32[64]{0} negate(%b)",
    "%early = f32[64]{0} slice(%large), slice={[0:64]}",
    'ROOT %r = f32[64]{0} custom-call(%small, %early, %late), custom_call_target="f"',
)


def _names(options: Options | None = None) -> list[str]:
    problem = state(TEXT, options)
    ordered = problem.in_order(problem.timeless.in_flow, ())
    return [buffer.values[0].instruction.name for buffer in ordered]


def test_large_ones_come_first_then_results_then_early_ones() -> None:
    # Post-order, not the schedule: the operands of the call are visited from the first on.
    assert _names() == ["large", "r", "a", "b", "early", "late", "small"]


def test_where_they_are_merged_fast_the_first_to_live_come_first() -> None:
    names = _names(Options(fast_merge=True))
    assert names.index("small") < names.index("large") < names.index("r")
    problem = state(TEXT, Options(fast_merge=True))
    starts = [problem.first_start(buffer_named(problem, name)) for name in names]
    assert starts == sorted(starts)


def test_a_buffer_is_as_large_as_its_largest_value() -> None:
    problem = state(TEXT)
    assert problem.size_of[buffer_named(problem, "large")] == 512
    assert problem.size_of[buffer_named(problem, "small")] == 32


def test_what_has_a_place_is_left_out() -> None:
    problem = state(TEXT)
    placed = {buffer_named(problem, "large")}
    ordered = problem.in_order(problem.timeless.in_flow, placed)
    assert not placed & set(ordered)
    assert len(ordered) == 6


def test_a_buffer_begins_with_the_first_of_its_values() -> None:
    problem = state(TEXT)
    large = buffer_named(problem, "large")
    sequence = [each.name for each in problem.live_ranges.sequence]
    assert sequence[problem.first_start(large)] == "large"
