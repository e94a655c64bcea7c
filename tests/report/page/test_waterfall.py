"""The bars between two compiles."""

from __future__ import annotations

from pathlib import Path

from hlomem.api.diff import diff
from hlomem.report.page.waterfall import build_waterfall


def test_the_page_says_which_program_of_several_is_compared(
    goldens: Path,
) -> None:
    several, alone = goldens / "trials/cpu/gpt", goldens / "pairs/donation_dropped/after"
    steps = build_waterfall(diff(several, alone)).steps
    assert (steps[0].label, steps[-1].label) == (f"A: {several} (train_step)", f"B: {alone}")


def test_a_program_beside_itself_needs_as_much(goldens: Path) -> None:
    alone = goldens / "pairs/donation_dropped/after"
    made = build_waterfall(diff(alone, alone))
    assert made.answer.startswith("As much in both: ")
    assert [step.label for step in made.steps] == [f"A: {alone}", f"B: {alone}"]
