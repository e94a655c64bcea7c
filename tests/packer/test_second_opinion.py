"""CP-SAT as a second opinion, where it is installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

import hlomem
from hlomem.base.errors import CommandError
from hlomem.packer.buffers import Buffer
from tests.packer.problems import GAP, smallest_height

HAS_ORTOOLS = find_spec("ortools") is not None


@pytest.mark.skipif(HAS_ORTOOLS, reason="OR-tools is installed")
def test_what_is_missing_is_named_with_the_line_that_installs_it() -> None:
    with pytest.raises(CommandError, match=r"pip install 'hlomem\[solver\]'"):
        hlomem.pack(GAP, effort=0, second_opinion=True)


@pytest.mark.skipif(not HAS_ORTOOLS, reason="OR-tools is not installed")
@pytest.mark.parametrize("factor", [1, 2, 3, 5])
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
