"""CP-SAT as a second opinion: OR-tools where it is installed, else one that tries everything."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

import hlomem
from hlomem.base.errors import CommandError
from hlomem.packer.buffers import Buffer
from hlomem.packer.instance import Instance
from hlomem.packer.second_opinion import ask_cp_sat
from tests.packer import small_cp_sat
from tests.packer.problems import GAP, smallest_height

HAS_ORTOOLS = find_spec("ortools") is not None


@pytest.fixture
def _cp_sat(monkeypatch: pytest.MonkeyPatch) -> None:
    if not HAS_ORTOOLS:
        monkeypatch.setitem(sys.modules, "ortools.sat.python.cp_model", small_cp_sat)


@pytest.mark.skipif(HAS_ORTOOLS, reason="OR-tools is installed")
def test_what_is_missing_is_named_with_the_line_that_installs_it() -> None:
    with pytest.raises(CommandError, match=r"pip install 'hlomem\[solver\]'"):
        hlomem.pack(GAP, effort=0, second_opinion=True)


@pytest.mark.usefixtures("_cp_sat")
@pytest.mark.parametrize("factor", [1, 2, 3, 5] if HAS_ORTOOLS else [1, 2, 3])
def test_both_find_the_same_height(factor: int) -> None:
    problem = [
        Buffer(b.id, b.lower, b.upper, b.size * factor, b.alignment, b.more_lives) for b in GAP
    ]
    asked = hlomem.pack(problem, effort=0, second_opinion=True)
    assert asked.height == smallest_height(problem) == hlomem.pack(problem).height
    assert asked.status in ("at the bound", "proven optimal")
    assert hlomem.pack(
        problem, capacity=asked.height - 1, effort=0, second_opinion=True
    ).status == ("proven not to fit")


@pytest.mark.usefixtures("_cp_sat")
def test_a_capacity_is_met_by_places_that_fit() -> None:
    fitting = hlomem.pack(GAP, capacity=17, effort=0, second_opinion=True)
    assert fitting.height <= 17
    assert fitting.status in ("fits", "proven optimal", "at the bound")


@pytest.mark.usefixtures("_cp_sat")
def test_what_is_at_the_bound_is_not_asked_for() -> None:
    instance = Instance(GAP)
    assert ask_cp_sat(instance, None, 17, 17, 1) == ((), 17)


@pytest.mark.usefixtures("_cp_sat")
def test_sizes_beyond_64_bits_are_refused() -> None:
    instance = Instance([Buffer("a", 0, 1, 1 << 50), Buffer("b", 0, 1, 3)])
    with pytest.raises(CommandError, match="exceed CP-SAT's 64 bits"):
        ask_cp_sat(instance, None, 0, 1 << 51, 1)
