"""What is not installed is said with the way to get it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hlomem import fleet
from hlomem.base.errors import CommandError
from hlomem.fleet.storage import require


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    with pytest.raises(CommandError, match=r"a store needs no_such_one, .*hlomem\[fleet\]"):
        require("no_such_one.core", "a store")


def test_a_scan_without_its_packages_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(CommandError, match="a store needs duckdb"):
        fleet.scan([tmp_path], tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_a_name_the_package_has_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'scam'"):
        fleet.scam  # noqa: B018
