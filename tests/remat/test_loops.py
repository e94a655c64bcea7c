"""Loops that stack values for one another are found, and so is who reads what."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlomem import hlo
from hlomem.remat.loops import find_pairs
from tests.remat.scanned import SCANNED


@pytest.mark.parametrize("path", SCANNED, ids=lambda path: path.parent.parent.name)
def test_the_second_loop_reads_the_slices_in_the_reverse_order(path: Path) -> None:
    [pair] = find_pairs(hlo.parse(path.read_text(encoding="utf-8")))
    count = len(pair.first.ticks)
    assert pair.counterparts == tuple(reversed(range(count)))
    for stack in pair.stacks:
        assert stack.places == tuple(range(count))
        assert stack.reads
        shape = pair.first.initial.operands[stack.earlier_index].shape
        assert shape == pair.second.initial.operands[stack.later_index].shape
        assert shape.dimensions == (count, *stack.part.dimensions[1:])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("subtract(%constant", "add(%constant"),  # places beyond the end, all clamped to the last
        ("direction=LT", "direction=NE"),
    ],
)
def test_a_loop_is_gone_through_and_not_guessed_at(old: str, new: str) -> None:
    text = SCANNED[0].read_text(encoding="utf-8")
    if old not in text:
        pytest.skip("XLA writes it otherwise")
    [pair] = find_pairs(hlo.parse(text))
    changed = find_pairs(hlo.parse(text.replace(old, new)))
    if old.startswith("subtract"):
        assert not changed or changed[0].counterparts != pair.counterparts
    else:
        assert changed[0].counterparts == pair.counterparts
