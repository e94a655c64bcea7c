"""Words of a source that say how arrays are split, and have no effect as they stand.

In: a file, and the axes of the mesh. Out: names next to axes that the mesh lacks, which
helpers leave out; rows of a table after another of the same name, which is found first.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Doubtful(NamedTuple):
    """An expression, and the axes, or the names, that may be meant."""

    begin: tuple[int, int]
    meant: tuple[str, ...]
    why: str
    everywhere: str = ""
    """The word that stands there, where it is meant wherever it stands."""


@lru_cache(maxsize=64)
def doubtful_words(file: str, axes: tuple[str, ...]) -> tuple[Doubtful, ...]:
    """The words of a file that have no effect."""
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError, ValueError):
        return ()
    return (*_unknown(tree, axes), *_shadowed(tree, axes))


def _unknown(tree: ast.Module, axes: Sequence[str]) -> Iterator[Doubtful]:
    """Names next to those of axes, in one call or one tuple, that nothing else is called."""
    known = {word for node in ast.walk(tree) for word in _keys(node)}
    for node in ast.walk(tree):
        words = [one for one in _parts(node) if _word(one)]
        if not any(_word(one) in axes for one in words):
            continue
        for one in words:
            word = _word(one)
            if word.isidentifier() and word not in axes and word not in known:
                yield Doubtful(_begin(one), tuple(axes), f"the mesh has no axis {word!r}")


def _shadowed(tree: ast.Module, axes: Sequence[str]) -> Iterator[Doubtful]:
    """Rows that another of the same name stands before, which gives no axis or another."""
    for node in ast.walk(tree):
        rows = [one.elts for one in _parts(node) if isinstance(one, ast.Tuple)]
        if len(rows) < 2 or not all(len(row) == 2 and _word(row[0]) for row in rows):
            continue
        for at, (name, value) in enumerate(rows):
            later = [to for other, to in rows[at + 1 :] if _word(other) == _word(name)]
            meant = dict.fromkeys(_word(to) for to in later if _word(to) in axes)
            meant.pop(_word(value), None)
            if meant:
                why = f"a later row for {_word(name)!r}, of {' and '.join(meant)}, is not reached"
                yield Doubtful(_begin(value), tuple(meant), why)


@lru_cache(maxsize=64)
def words_together(file: str) -> tuple[tuple[str, ...], ...]:
    """The names that stand in one call or one tuple of a file, those of keywords among them."""
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError, ValueError):
        return ()
    found = []
    for node in ast.walk(tree):
        words = [word for one in _parts(node) if (word := _word(one)).isidentifier()]
        if isinstance(node, ast.Call):
            words += [one.arg for one in node.keywords if one.arg]
        found += [tuple(words)] if len(words) > 1 else []
    return tuple(found)


def _parts(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Call):
        return node.args
    return node.elts if isinstance(node, ast.Tuple | ast.List) else []


def _keys(node: ast.AST) -> Iterator[str]:
    """The words that stand for something: keys, fields, and the first of two in a row."""
    match node:
        case ast.Dict():
            yield from [_word(one) for one in node.keys]
        case ast.Tuple(elts=[first, _]):
            yield _word(first)
        case ast.keyword(arg=str() as name) | ast.arg(arg=name):
            yield name
        case ast.Subscript():
            yield _word(node.slice)


def _word(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _begin(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset
