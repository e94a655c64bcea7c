"""Limits, lines and baselines as they are written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlomem.base.errors import InputError
from hlomem.testing.baseline import read_baseline, relative_line
from hlomem.testing.session import parse_hbm_limit


@pytest.mark.parametrize(
    ("limit", "size"), [(7, 7), ("2 KiB", 2048), ("v5e", 16911433728), (None, None)]
)
def test_a_limit_is_a_number_a_size_a_chip_or_nothing(limit: object, size: int | None) -> None:
    assert parse_hbm_limit(limit) == size


@pytest.mark.parametrize(
    ("line", "placed"),
    [
        ("/home/me/project/src/model.py:7", "src/model.py:7"),
        ("/usr/lib/python3/site-packages/flax/core.py:8", "flax/core.py:8"),
        ("/elsewhere/lib/other.py:9", "lib/other.py:9"),
        ("(arguments)", "(arguments)"),
    ],
)
def test_a_line_is_placed_in_the_project_or_in_its_library(line: str, placed: str) -> None:
    assert relative_line(line, Path("/home/me/project")) == placed


def test_a_baseline_of_another_version_says_how_to_write_it_anew(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"schema": "hlomem-baseline/99", "programs": {}}))
    with pytest.raises(InputError, match=r"another version, .*99; --hlomem-update rewrites it"):
        read_baseline(path)
