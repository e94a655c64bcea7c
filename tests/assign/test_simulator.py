"""One tick for every allocation and every release: `HeapSimulator::RunComputation`."""

from __future__ import annotations

from collections.abc import Sequence

from hlomem.analysis.values import HloValue
from hlomem.assign.allocation import OffsetSize
from hlomem.assign.packing import BufferInterval, Packing, pack_best
from hlomem.assign.simulator import HeapSimulator
from tests.assign.programs import buffer_named, module_of, state

REVERSE = "reverse(%{}), dimensions={{0}}"


def _run(
    *lines: str, names: str
) -> tuple[dict[str, BufferInterval], dict[HloValue, OffsetSize], int]:
    """What the packer sees of some values, by instruction; their slices; the size of the heap."""
    problem = state(module_of(*lines))
    buffers = [buffer_named(problem, name) for name in names.split()]
    values = [value for buffer in buffers for value in buffer.values]
    range_of = problem.live_ranges.range_of
    seen: list[BufferInterval] = []

    def pack(buffers: Sequence[BufferInterval], alignment: int) -> Packing:
        seen.extend(buffers)
        return pack_best(buffers, alignment)

    lives = [
        (*range_of[value], value.id, value, problem.size_of[buffer])
        for buffer in buffers
        for value in buffer.values
    ]
    simulator = HeapSimulator(lives, problem.aliasing.united, problem.timeless.sharing)
    slices, size = simulator.run(16, pack)
    by_id: dict[int, str] = {value.id: value.instruction.name for value in values}
    return {by_id[interval.id]: interval for interval in seen}, slices, size


def test_what_is_freed_at_a_step_is_freed_after_what_begins_there() -> None:
    intervals, _, size = _run(
        f"%n = f32[64]{{0}} {REVERSE.format('a')}",
        f"%m = f32[64]{{0}} {REVERSE.format('n')}",
        f"ROOT %r = f32[64]{{0}} {REVERSE.format('m')}",
        names="n m",
    )
    assert (intervals["n"].start, intervals["m"].start) == (0, 1)
    assert (intervals["n"].end, intervals["m"].end) == (2, 3)
    assert size == 512


def test_a_result_that_may_takes_the_place_of_its_dying_operand() -> None:
    intervals, slices, size = _run(
        f"%n = f32[64]{{0}} {REVERSE.format('a')}",
        "%m = f32[64]{0} negate(%n)",
        f"ROOT %r = f32[64]{{0}} {REVERSE.format('m')}",
        names="n m",
    )
    assert set(intervals) == {"n"}
    assert list(intervals["n"].colocations) == [(2, 3)]
    assert {offset for offset, _ in slices.values()} == {0}
    assert size == 256


def test_an_operand_that_is_read_later_keeps_its_place() -> None:
    intervals, _, _ = _run(
        f"%n = f32[64]{{0}} {REVERSE.format('a')}",
        "%m = f32[64]{0} negate(%n)",
        "ROOT %r = f32[64]{0} add(%m, %n)",
        names="n m",
    )
    assert set(intervals) == {"n", "m"}


def test_values_of_one_buffer_are_placed_together() -> None:
    intervals, slices, size = _run(
        "%i = s32[] constant(0)",
        "%u = f32[2]{0} slice(%b), slice={[0:2]}",
        f"%n = f32[64]{{0}} {REVERSE.format('a')}",
        "%d = f32[64]{0} dynamic-update-slice(%n, %u, %i)",
        f"ROOT %r = f32[64]{{0}} {REVERSE.format('d')}",
        names="n",
    )
    assert set(intervals) == {"n"}
    assert len(slices) == 2
    assert size == 256


def test_nothing_takes_no_time() -> None:
    intervals, _, size = _run(
        "%z = f32[0]{0} slice(%a), slice={[0:0]}",
        f"%n = f32[64]{{0}} {REVERSE.format('a')}",
        'ROOT %r = f32[64]{0} custom-call(%z, %n), custom_call_target="f"',
        names="z n",
    )
    assert (intervals["z"].start, intervals["n"].start) == (0, 0)
    assert size == 256
