"""A row of the registry is a command, a screen and a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlomem
from hlomem.cli.commands import COMMANDS
from hlomem.report.data.lookup import find_space
from hlomem.report.data.memory import build_memory
from hlomem.report.data.summary import WORTH_SAYING, build_hints
from hlomem.report.registry import REPORTS
from tests.places import ROOT

OOM = ROOT / "examples" / "oom" / "before"
GOLDENS = ROOT / "tests" / "goldens"
DUMPS = [*sorted((GOLDENS / "seeds").glob("*.txt")), *sorted((GOLDENS / "xla").glob("*/*/*"))]


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_built_drawn_and_listed(name: str) -> None:
    memory = build_memory(hlomem.load(OOM))
    report = REPORTS[name]
    lines = report.draw(report.build(memory, find_space(memory)), 80)
    assert lines
    assert COMMANDS[name] == report.help.split("\n")[0]


def test_hints_are_those_of_the_reports_largest_first() -> None:
    memory = build_memory(hlomem.load(OOM))
    space = find_space(memory)
    hints = build_hints(memory, space)
    assert [hint.size for hint in hints] == sorted((hint.size for hint in hints), reverse=True)
    built = {name: report.build(memory, space) for name, report in REPORTS.items()}
    assert build_hints(memory, space, built) == hints
    own = [REPORTS[name].hint_of(data) for name, data in built.items()]
    worth = {hint for hint in own if hint is not None and hint.size >= WORTH_SAYING * space.size}
    assert worth <= set(hints)
    assert all(hint.size >= WORTH_SAYING * space.size for hint in hints)
    assert {hint.command for hint in hints} <= {*REPORTS, "peak --by role"}


@pytest.mark.parametrize("path", DUMPS[:5] + DUMPS[5::9], ids=lambda p: "/".join(p.parts[-3:]))
def test_the_screens_fit(path: Path) -> None:
    memory = build_memory(hlomem.load(path))
    for space in memory.spaces:
        for width in (60, 80, 120):
            screens = [
                report.draw(report.build(memory, space), width) for report in REPORTS.values()
            ]
            for line in (line for screen in screens for line in screen[1:]):
                assert len("".join(text for text, _ in line)) <= width
