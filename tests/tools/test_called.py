"""Every tool has a caller, and the tools, targets and files that are named exist."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.places import PACKAGE, ROOT

if TYPE_CHECKING:
    from pathlib import Path

MAKEFILE = ROOT / "Makefile"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SETTINGS = [
    MAKEFILE,
    ROOT / ".pre-commit-config.yaml",
    *sorted((ROOT / ".github").rglob("*.yml")),
]
TESTS = [
    *sorted((ROOT / "tests").rglob("*.py")),
    *sorted((ROOT / "tests").rglob("README.md")),
]
CALLERS = [*SETTINGS, *PAGES, *TESTS, *sorted((ROOT / "bench").glob("*.py"))]
TOOLS = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for path in sorted((ROOT / "tools").rglob("*.py"))
    if path.name != "__init__.py" and not {"scripts", "second", "sharded"} & set(path.parts)
}
DOCUMENT_OF_CHANGES = ROOT / "docs" / "contributing.md"


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _named(path: Path) -> set[str]:
    """The tools that a file runs, imports or names."""
    if "tools" not in _text(path):
        return set()
    named = [re.split("[./]", name) for name in re.findall(r"\btools(?:[./]\w+)+", _text(path))]
    for home, names in re.findall(r"\bfrom (tools[\w.]*) import (\([^)]*|[^\n]*)", _text(path)):
        named += [[*home.split("."), name] for name in re.findall(r"\w+", names)]
    prefixes = {".".join(parts[:count]) for parts in named for count in (2, 3, 4)}
    return prefixes & TOOLS.keys()


def _called() -> set[str]:
    """The tools that are named by callers, or by other such tools."""
    called: set[str] = set()
    waiting = list(CALLERS)
    while waiting:
        new = _named(waiting.pop()) - called
        called |= new
        waiting += [TOOLS[tool] for tool in sorted(new)]
    return called


def test_every_tool_is_named_by_make_a_document_or_a_test() -> None:
    assert len(TOOLS) > 40
    assert TOOLS.keys() - _called() == set()


def test_every_script_is_described() -> None:
    home = ROOT / "tools" / "programs" / "scripts"
    described = _text(home / "README.md")
    scripts = {path.name for path in home.glob("*.py")} - {"compiling.py"}
    assert scripts == set(re.findall(r"^\| `(\w+\.py)`", described, re.MULTILINE))


@pytest.mark.parametrize("path", [*SETTINGS, *PAGES], ids=lambda path: path.name)
def test_named_tools_exist(path: Path) -> None:
    modules = re.findall(r"-m (tools\.[\w.]+)", _text(path))
    files = re.findall(r"\btools/[\w/]+\.(?:py|txt|json)\b", _text(path))
    named = {*files, *(f"{name.replace('.', '/')}.py" for name in modules)}
    assert {name for name in named if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("path", [*SETTINGS, *PAGES], ids=lambda path: path.name)
def test_named_targets_of_make_exist(path: Path) -> None:
    assert set(re.findall(r"(?:`|run: )make ([a-z][a-z-]*)", _text(path))) <= _targets()


def test_every_target_of_make_is_made_whenever_it_is_asked_for() -> None:
    [phony] = re.findall(r"^\.PHONY:((?:\\\n|[^\n])*)", _text(MAKEFILE), re.MULTILINE)
    assert set(phony.replace("\\", "").split()) == _targets()


def _targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", _text(MAKEFILE), re.MULTILINE))


def test_the_table_of_changes_names_files_that_exist() -> None:
    _, _, table = _text(DOCUMENT_OF_CHANGES).partition("## Where a change goes")
    named = re.findall(r"`([a-z_]+(?:/\w+)+\.(?:py|c))`", table)
    assert len(named) > 40
    missing = [name for name in named if not (PACKAGE / name).exists()]
    assert [name for name in missing if not name.endswith(("/x.py", "/x_text.py"))] == []
