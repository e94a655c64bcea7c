"""Tests stand where the code stands: each module of these packages has a file of its own."""

from __future__ import annotations

import pytest

from tests.places import PACKAGE, ROOT


@pytest.mark.parametrize("package", ["analysis", "assign", "check"])
def test_every_module_has_the_test_file_of_its_name(package: str) -> None:
    modules = {path.stem for path in (PACKAGE / package).glob("*.py")} - {"__init__"}
    tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / package).glob("test_*")}
    assert modules - tests == set()
