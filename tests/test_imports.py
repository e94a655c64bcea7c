"""Imports go one way: down this table."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "hlomem"
BASE = {"collector", "source", "errors", "sizes"}
PROGRAM = BASE | {"hlo", "backends", "options"}
PLANNER = PROGRAM | {"analysis", "assign", "pipeline"}
MAY_IMPORT = {
    "collector": set[str](),
    "source": BASE,
    "sizes": BASE,
    "errors": BASE,
    "hlo": BASE,
    "backends": BASE | {"hlo"},
    "options": BASE | {"hlo", "backends"},
    "analysis": PROGRAM,
    "assign": PROGRAM | {"analysis"},
    "packer": BASE,
    "packing": BASE | {"assign", "packer"},
    "pipeline": PLANNER,
    "dump": BASE,
    "dump.build": PLANNER,
    "dump.plan_text": PLANNER | {"dump.build"},
    "compact": BASE | {"dump", "hlo"},
    "planning": PLANNER | {"dump", "dump.build", "dump.plan_text", "compact"},
    "rebuild": PROGRAM | {"analysis", "dump"},
    "replanning": PLANNER | {"dump", "planning", "rebuild", "check"},
    "advising": PLANNER | {"dump", "planning", "replanning", "check", "report"},
    "inputs": BASE | {"dump", "hlo"},
    "outputs": BASE,
    "check": BASE | {"dump", "hlo", "backends"},
    "explaining": BASE | {"dump", "hlo", "backends", "inputs", "planning", "report"},
    "report": BASE | {"dump", "hlo", "backends", "check"},
}
ANYTHING = {"cli", "__main__", "__init__", "integrations"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def _home(module: str) -> str:
    """The row of the table a module belongs to."""
    return module if module in MAY_IMPORT else module.split(".", maxsplit=1)[0]


def _imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    inside = (name.removeprefix("hlomem.") for name in names if name.startswith("hlomem."))
    return {_home(name) for name in inside}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_table(path: Path) -> None:
    module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    home = _home(module)
    if home in ANYTHING:
        return
    allowed = MAY_IMPORT[home] | {home, home.split(".")[0]}
    assert _imported(path) <= allowed


def test_packing_knows_nothing_of_ours() -> None:
    for path in (PACKAGE / "assign").glob("*.py"):
        if path.stem in {"packing", "interval_tree"}:
            assert _imported(path) <= {"assign"}


def test_nobody_imports_the_command_line() -> None:
    for path in MODULES:
        if path.parent.name != "cli" and path.stem != "__main__":
            assert "cli" not in _imported(path)
