"""`hlomem diff` from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

PAIR = "pairs/donation_dropped"


def _sides(goldens: Path) -> tuple[Path, Path]:
    return goldens / PAIR / "before", goldens / PAIR / "after"


def test_one_screen_of_two_dumps(run: Run, goldens: Path) -> None:
    result = run("diff", *_sides(goldens))
    screen = result.out.decode()
    assert result.code == 0
    assert screen.startswith("memory +288.0 KiB, +19.5%\n")
    assert "+642.0 KiB  no longer donated: params; results take memory of their own" in screen
    assert [line.split()[-1] for line in screen.splitlines()[1:3]] == ["before", "after"]
    assert "tools/record_pairs.py:54" in screen


@pytest.mark.parametrize(
    ("limit", "code"),
    [("+2%", 1), ("+20%", 0), ("+1MiB", 0), ("+288KiB", 0), ("+287KiB", 1), ("0", 1)],
)
def test_more_than_the_limit_is_a_finding(run: Run, goldens: Path, limit: str, code: int) -> None:
    result = run("diff", "--fail-on", limit, *_sides(goldens))
    assert result.code == code
    assert ("over the limit: 288.0 KiB more" in result.err) == bool(code)


def test_less_is_never_over_the_limit(run: Run, goldens: Path) -> None:
    after, before = reversed(_sides(goldens)), "--fail-on=+0%"
    assert run("diff", before, *after).code == 0


def test_a_limit_that_is_none_is_refused(run: Run, goldens: Path) -> None:
    result = run("diff", "--fail-on", "much", *_sides(goldens))
    assert result.code == 2
    assert "not a limit: `much`; give `+2%` or `+1GiB`" in result.err


def test_json_adds_up(run: Run, goldens: Path) -> None:
    content = json.loads(run("diff", "--json", "--by", "role", *_sides(goldens)).out)
    assert (content["schema"], content["kind"], content["by"]) == ("hlomem/1", "diff", "role")
    rows = content["rows"]
    assert sum(row["after_size"] - row["before_size"] for row in rows) == content["delta"]


def test_equal_dumps_do_not_differ(run: Run, goldens: Path) -> None:
    before, _ = _sides(goldens)
    assert run("diff", before, before).out.endswith(b"\nno difference\n")


def test_a_module_is_planned_first(run: Run, goldens: Path) -> None:
    before, _ = _sides(goldens)
    result = run("diff", before / "module.hlo", before)
    assert result.code == 0
    assert result.out.endswith(b"\nno difference\n")


def test_of_folders_of_several_programs_it_says_which_are_compared(run: Run, goldens: Path) -> None:
    several, alone = goldens / "trials/cpu/gpt", goldens / PAIR / "after"
    said = "        train_step, the largest of 3 programs; --module chooses another"
    assert run("diff", several, several).out.decode().splitlines()[2:5:2] == [said, said]
    assert run("diff", several, alone).out.decode().count("the largest of") == 1
    sides = json.loads(run("diff", "--json", several, alone).out)
    assert (sides["before"]["program"], sides["after"]["chosen"]) == ("train_step", "")
