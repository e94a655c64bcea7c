"""A platform has one home: nobody outside asks which one it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hlomem.machines.registry import PLATFORMS
from tests.places import PACKAGE

AT_HOME = {"machines", "history"}
"""Packages that hold what differs from platform to platform."""
ALIAS_RULES = {"gpu_alias.py", "gpu_kernels.py", "tpu_alias.py"}
"""Rules of `analysis` that a machine names."""
OUTSIDE = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.relative_to(PACKAGE).parts[0] not in AT_HOME
]
_SPLITTERS = {"partition", "rpartition", "split", "startswith", "endswith", "removeprefix"}


def _strings(node: ast.expr) -> list[str]:
    """The strings in a constant, or in a collection of them."""
    return [
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]


def _name(node: ast.expr) -> str:
    """The last name of `a.b.c`; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def asked(node: ast.AST) -> bool:
    """Whether an expression asks which platform something is of."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        is_platform = any(_name(side) in ("platform", "backend") for side in sides)
        names = {text for side in sides for text in _strings(side)}
        return bool(names & set(PLATFORMS)) or (is_platform and bool(names - {""}))
    if isinstance(node, ast.Call) and _name(node.func) in _SPLITTERS:
        texts = [text for argument in node.args for text in _strings(argument)]
        if any(text.partition("-")[0] in PLATFORMS and text.endswith("-") for text in texts):
            return True
        subject = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        owner = _name(subject.value) if isinstance(subject, ast.Attribute) else ""
        return texts == ["-"] and owner in ("machine", "backend", "platform")
    return False


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nobody_asks_for_the_platform(path: Path) -> None:
    lines = [
        getattr(node, "lineno", 0) for node in ast.walk(ast.parse(path.read_text())) if asked(node)
    ]
    assert not lines, f"{path.name}: platforms are told apart in lines {lines}"


@pytest.mark.parametrize(
    "text",
    [
        'machine.platform == "gpu"',
        'backend != "tpu"',
        '"cpu" == name',
        'platform in ("cpu", "gpu")',
        'name.startswith("tpu-")',
        'options.machine.name.partition("-")',
        'machine.platform == "npu"',
    ],
)
def test_every_way_to_ask_is_seen(text: str) -> None:
    assert any(map(asked, ast.walk(ast.parse(text))))


@pytest.mark.parametrize("text", ['backend == ""', 'opcode == "copy"', 'name.partition("-")'])
def test_other_questions_are_allowed(text: str) -> None:
    assert not any(map(asked, ast.walk(ast.parse(text))))


def test_no_file_outside_is_named_after_a_platform() -> None:
    named = {path.name for path in OUTSIDE if path.stem.partition("_")[0] in PLATFORMS}
    assert named == ALIAS_RULES
