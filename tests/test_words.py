"""The words of code, screens and documents: those of the field, and nouns for things."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.places import PACKAGE, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = sorted(PACKAGE.rglob("*.py"))
CLAUSE = re.compile(r"(What|Who|Whose|Which|Whether|Where|When)\b")
"""The beginning of a relative clause that stands in for a noun."""
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FIELDS = (ast.Assign, ast.AnnAssign)
INSTEAD = {
    r"behind": "after, past",
    r"beside": "next to, alongside, in addition to",
    r"nobody|somebody|anybody|everybody|whoever": "name the code, or use the passive",
    r"anew": "again",
    r"meanwhile": "within the block, while",
    r"at hand": "known, available",
    r"dear|dearer": "expensive, costly",
    r"foretells?|foretold": "predict, forecast",
    r"judges?|judged": "check, checker, evaluate",
    r"(?<!there )(?:is|are) (?-i:none)": "is not one, is missing",
    r"ha[sd] not(?=[.,;:)])": "lacks, does not have",
    r"comput(?:e|es|ed|ing)(?: \w+)? again": "recompute, rematerialize",
    r"in vain": "unused",
    r"for want of": "for lack of",
    r"in the place of": "instead of",
    r"as it has it": "say whose",
    r"(?:its|the|another|other|no|same|these|their|which) places?": "offset, location, position",
}
"""Words that a native engineer of this field would not use, and what to say instead."""
AVOIDED = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)
PROSE = [*FILES, *sorted((PACKAGE / "report" / "page" / "templates").glob("*.*"))]
DOCUMENTS = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
YES_OR_NO = {"bool", "bool | None", "TypeGuard[Shape]"}


def _statements(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            yield body


def _docstrings(tree: ast.AST) -> Iterator[tuple[ast.stmt | ast.Module, str]]:
    """Every docstring with its owner: a module, class, function, or the field it follows."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)) is not None:
            yield node, text
    for body in _statements(tree):
        for owner, statement in pairwise(body):
            if isinstance(owner, FIELDS) and isinstance(statement, ast.Expr):
                value = statement.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield owner, value.value


def _answers_yes_or_no(owner: ast.stmt | ast.Module) -> bool:
    """Whether an owner is a predicate or a flag, whose docstring may begin with "Whether"."""
    if isinstance(owner, ast.FunctionDef):
        return owner.returns is not None and ast.unparse(owner.returns) in YES_OR_NO
    if isinstance(owner, ast.AnnAssign):
        return ast.unparse(owner.annotation) in YES_OR_NO
    return isinstance(owner, ast.Assign)  # its type is not written down


def clauses(tree: ast.AST) -> list[str]:
    """The docstrings that begin with a relative clause where they should name the thing."""
    return [
        text.partition("\n")[0]
        for owner, text in _docstrings(tree)
        if (match := CLAUSE.match(text)) is not None
        and not (match[0] == "Whether" and _answers_yes_or_no(owner))
    ]


def pronouns(tree: ast.AST) -> list[int]:
    """The lines on which something is bound to the name `each`."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.arg) and node.arg == "each")
        or (isinstance(node, ast.Name) and node.id == "each" and isinstance(node.ctx, ast.Store))
    ]


def avoided(text: str) -> list[str]:
    """The avoided words of a text, each with its line number."""
    return [
        f"{number}: {match[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for match in AVOIDED.finditer(line)
    ]


def _id(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_words_of_documents_are_those_of_the_field(path: Path) -> None:
    assert avoided(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", PROSE, ids=_id)
def test_the_words_are_those_of_the_field(path: Path) -> None:
    assert avoided(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "the offset behind it",
        "read by nobody",
        "values computed twice, then computing values again",
        "which its operand has not.",
        "None where the bytes are none",
        "another place in memory",
    ],
)
def test_avoided_words_are_found(text: str) -> None:
    assert len(avoided(text)) == 1


@pytest.mark.parametrize("text", ["written in place", "it has not changed", "a second judgement"])
def test_other_words_are_not(text: str) -> None:
    assert avoided(text) == []


@pytest.mark.parametrize("path", FILES, ids=_id)
def test_docstrings_name_the_thing(path: Path) -> None:
    assert clauses(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", FILES, ids=_id)
def test_nothing_is_called_each(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "each" not in text or pronouns(ast.parse(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        '"""What a module holds."""',
        'class Reader:\n    """Who reads a value."""',
        'def run():\n    """Where it runs."""',
        'def count() -> int:\n    """Whether there are any."""',
        'SIZE = 3\n"""Which size."""',
        'class Row:\n    name: str\n    """Whether it has one."""',
    ],
)
def test_a_clause_in_the_place_of_a_noun_is_found(text: str) -> None:
    assert len(clauses(ast.parse(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        '"""Whatever is left."""',
        'def is_open() -> bool:\n    """Whether it is open."""',
        'class Row:\n    is_open: bool\n    """Whether it is open."""',
    ],
)
def test_a_predicate_may_say_whether(text: str) -> None:
    assert clauses(ast.parse(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "for each in rows: pass",
        "[name for name, each in rows]",
        "sorted(rows, key=lambda each: each.size)",
        "each = rows.pop()",
    ],
)
def test_every_way_to_bind_each_is_found(text: str) -> None:
    assert pronouns(ast.parse(text)) == [1]
