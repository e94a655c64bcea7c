"""`hlomem scale` from outside."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run
from tests.places import GOLDENS

HOME = GOLDENS / "sizes" / "train_step"


def test_sizes_are_marked_as_compiled_or_planned(run: Run) -> None:
    options = ("--sizes", "2,4", "--at", "8", "--capacity", "1MiB")
    result = run("scale", HOME / "2", HOME / "4", *options)
    screen = result.out.decode()
    assert result.code == 0
    rows = {words[0]: words[-1] for line in screen.splitlines() if (words := line.split())}
    assert (rows["2"], rows["4"], rows["8"]) == ("compiled", "compiled", "planned")
    assert "only a compile tells" in screen
    content = json.loads(run("scale", HOME / "2", HOME / "4", *options, "--json").out)
    assert content["kind"] == "scale"
    found = f"whose plan fits 1.00 MiB is {content['largest']};"
    assert f"{found} {content['smallest_refused']} is over by " in " ".join(screen.split())


def test_nothing_that_fits_is_a_finding(run: Run) -> None:
    options = ("--sizes", "2,4", "--capacity", "2KiB", "--step", "4")
    result = run("scale", HOME / "2", HOME / "4", *options)
    assert result.code == 1
    assert "no multiple of 4 that was planned fits 2.0 KiB" in result.out.decode()


def test_two_programs_are_shown_where_they_differ(run: Run) -> None:
    result = run("scale", HOME / "8", HOME / "16", "--sizes", "8,16")
    assert result.code == 3
    assert "these are two programs" in result.err
    assert "\n52 | %region_2.3 " in result.err
    assert "`hlomem fit` compiles each" in result.err


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ("2,x", "`--sizes` has no size `x`"),
        ("2,0", "`--sizes` has no size `0`"),
        ("2,4,8", "`--sizes` needs the two sizes"),
        ("2,2", "at two different sizes"),
    ],
)
def test_wrong_sizes_are_said(run: Run, sizes: str, said: str) -> None:
    result = run("scale", HOME / "2", HOME / "4", "--sizes", sizes)
    assert result.code == 2
    assert said in result.err
