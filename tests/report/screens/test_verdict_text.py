"""A verdict on a screen, with the schedule around what it blames."""

from __future__ import annotations

from hlomem.check.verify import verify
from hlomem.machines.cpu import CPU
from hlomem.report.screens.text import plain
from hlomem.report.screens.verdict_text import MAX_SHOWN, draw_verdict
from tests.check.small import V, small_dump

NAMES = [f"v{number}" for number in range(30)]


def test_a_finding_shows_the_schedule_around_both_values() -> None:
    dump = small_dump([V("v3", (3, 9)), V("v8", (8, 20))], sequence=NAMES)
    verdict = verify(dump, machine=CPU)
    screen = plain(draw_verdict(verdict, 80, NAMES))
    for name in ("v3", "v8", "v9", "v20"):
        assert f"  {name}\n" in screen + "\n"
    assert "v15" not in screen
    without = plain(draw_verdict(verdict, 80))
    assert "┌" in screen
    assert "┌" not in without


def test_many_findings_stay_one_screen() -> None:
    dump = small_dump([V(name, (number, 29)) for number, name in enumerate(NAMES)], sequence=NAMES)
    verdict = verify(dump, machine=CPU)
    assert len(verdict.findings) > MAX_SHOWN
    lines = draw_verdict(verdict, 80, NAMES)
    assert len(lines) < 100
    assert max(len("".join(text for text, _ in line)) for line in lines) <= 80
