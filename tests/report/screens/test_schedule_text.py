"""A few lines of a schedule, whatever the lives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.report.screens.text import plain
from hlomem.report.screens.verdict_text import MAX_STEPS, draw_schedule

NAMES = [f"instruction.{number}" for number in range(40)]
LIFE = st.tuples(st.integers(-3, 45), st.integers(-3, 45)).map(lambda pair: (min(pair), max(pair)))


def test_bars_stand_beside_the_steps_a_value_is_alive_at() -> None:
    screen = plain(draw_schedule(["a", "b", "c", "d"], [(0, 2), (2, 3)], 80))
    assert [line.split() for line in screen.split("\n") if line] == [
        ["┌", "0", "a"],
        ["│", "1", "b"],
        ["└┌", "2", "c"],
        ["└", "3", "d"],
    ]


def test_what_lies_between_is_left_out_and_marked() -> None:
    screen = plain(draw_schedule(NAMES, [(5, 30)], 80))
    assert "⋮" in screen
    assert "instruction.5" in screen
    assert "instruction.30" in screen
    assert "instruction.17" not in screen


def test_the_end_of_the_program_is_a_step() -> None:
    assert "(end of the program)" in plain(draw_schedule(["a"], [(0, 1)], 80))


@given(st.lists(LIFE, max_size=2), st.integers(30, 90))
def test_it_fits_and_is_bounded(lives: list[tuple[int, int]], columns: int) -> None:
    lines = draw_schedule(NAMES, lives, columns)
    texts = ["".join(text for text, _ in line) for line in lines]
    assert all(len(text) <= columns for text in texts)
    steps = [text for text in texts if "⋮" not in text]
    assert len(steps) <= MAX_STEPS
    events = {step for life in lives for step in life if 0 <= step <= len(NAMES)}
    assert bool(steps) == bool(events)
