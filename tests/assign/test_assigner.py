"""Whole plans: XLA's allocations for small programs, and soundness judged without the planner."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from hlomem.dump.eras import NEWEST
from hlomem.dump.file_names import Kind
from hlomem.dump.parts import format_part
from hlomem.hlo.text.parser import parse
from hlomem.pipeline import run_stages
from hlomem.write.build import build_contents
from tests.analysis.programs import CONDITIONAL, DONATE_SWAP

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.pipeline import Stages

PROGRAMS = ("cond_simple", "donate_swap", "nested_while", "passthrough_and_dup", "scalar_only")
FILES: dict[Kind, str] = {
    "assignment": "buffer-assignment.txt",
    "live-range": "live-range.txt",
    "report": "memory-usage-report.txt",
}


def _plan_golden(goldens: Path, program: str) -> tuple[Stages, Path]:
    folder = goldens / "xla" / "jaxlib-0.12.0.1" / "cpu" / program
    return run_stages(parse((folder / "module.hlo").read_text())), folder


@pytest.mark.parametrize("program", [*PROGRAMS, "zero_size"])
def test_the_dumps_are_those_of_xla(goldens: Path, program: str) -> None:
    stages, folder = _plan_golden(goldens, program)
    contents = build_contents(stages, NEWEST.features)
    for kind, name in FILES.items():
        assert format_part(kind, contents, NEWEST) == (folder / name).read_text(), name


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_two_values_that_are_alive_together_overlap(goldens: Path, program: str) -> None:
    stages, _ = _plan_golden(goldens, program)
    ranges = stages.live_ranges.range_of
    for allocation in stages.assignment.allocations:
        placed = [entry for entry in allocation.slices.items() if entry[0] in ranges]
        for (one, here), (two, there) in combinations(placed, 2):
            is_apart = (
                here.offset + here.size <= there.offset or there.offset + there.size <= here.offset
            )
            first, second = sorted((ranges[one], ranges[two]))
            # Two may share a moment at which one is made from the other, in place.
            assert is_apart or first.end <= second.start, (one, two)


def test_a_donated_parameter_and_its_output_share_an_allocation() -> None:
    allocations = run_stages(parse(DONATE_SWAP)).assignment.allocations
    contents = [
        {value.instruction.name: tuple(place) for value, place in each.slices.items()}
        for each in allocations
    ]
    assert contents == [
        {"a.1": (0, 360000), "copy.2": (0, 360000)},
        {"b.1": (0, 360000), "copy.3": (0, 360000)},
        {"tuple": (0, 16)},
        {"copy": (0, 360000), "copy.1": (360000, 360000)},
    ]


def test_temporaries_of_all_kinds_end_in_one_allocation() -> None:
    last = run_stages(parse(CONDITIONAL)).assignment.allocations[-1]
    assert last.is_preallocated_temp
    assert {value.instruction.name: place.offset for value, place in last.slices.items()} == {
        "cond.5": 0,
        "wrapped_convert": 64,
    }
    assert last.size == 68


def test_the_same_text_gives_the_same_plan() -> None:
    one, two = (
        [
            [(value.id, place) for value, place in each.slices.items()]
            for each in run_stages(parse(CONDITIONAL)).assignment.allocations
        ]
        for _ in range(2)
    )
    assert one == two
