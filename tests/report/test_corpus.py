"""A sample of the corpus, where it is at hand; all of it is `python -m tools.check_reports`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import ROOT
from tools.check_reports import check_dump

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("name", ["train_step", "oom/before", "oom/after"])
def test_every_sum_holds_on_the_examples(name: str) -> None:
    assert check_dump(EXAMPLES / name) == []


def test_every_sum_holds_on_a_sample(shared: Path) -> None:
    entries = sorted(path.parent for path in shared.glob("corpus/*/*/buffer-assignment.txt"))
    assert entries
    assert [problem for entry in entries[::60] for problem in check_dump(entry)] == []
