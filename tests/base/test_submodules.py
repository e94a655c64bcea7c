"""Modules found by name when they are asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import hlomem
import hlomem.jax
from hlomem.base.submodules import find_submodules


def test_a_module_that_is_there_is_found() -> None:
    assert find_submodules("hlomem.base")("sizes") is sys.modules["hlomem.base.sizes"]


@pytest.mark.parametrize("name", ["nothing", "_hidden"])
def test_what_is_not_there_is_no_attribute(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'hlomem' has no attribute '{name}'"):
        getattr(hlomem, name)
    with pytest.raises(AttributeError, match=f"module 'hlomem.base' has no attribute '{name}'"):
        find_submodules("hlomem.base")(name)


def test_a_package_lists_the_names_it_promises() -> None:
    for package in (hlomem, hlomem.hlo, hlomem.jax):
        assert dir(package) == sorted(package.__all__)


def test_a_module_that_lacks_something_says_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "__init__.py").touch()
    (tmp_path / "half" / "broken.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        find_submodules("half")("broken")
