"""The names that a program gives to its layouts: a wrong choice is no wrong layout.

In: the key of an expression. Out: the name it is kept under: a variable, or a key of a table.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlomem.jax.probes.instrument import Key

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def name_of(key: Key) -> str:
    """The name that the value of an expression is kept under; empty if there is none."""
    return _named(key.file).get((key.begin, key.end), "")


def words_of(texts: Iterable[str]) -> set[str]:
    """The words of names, in the singular: `KV_CACHES`, `kvCache` and `cache['kv']` are alike."""
    return {word.lower().removesuffix("s") for text in texts for word in _WORD.findall(text)}


Range = tuple[tuple[int, int], tuple[int, int]]


@lru_cache(maxsize=32)
def _named(file: str) -> dict[Range, str]:
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError, ValueError):
        return {}
    return {
        _range(inner): name
        for node in ast.walk(tree)
        for name, value in _kept(node)
        for inner in (value, *_parts(value))
    }


def _kept(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            yield from _pairs(zip(names, values, strict=False))
        case ast.Assign():
            yield from _pairs((target, node.value) for target in node.targets)
        case ast.AnnAssign(value=ast.expr() as value):
            yield from _pairs([(node.target, value)])
        case ast.Dict():
            yield from [
                (key.value, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
        case ast.Call(func=ast.Name(id="dict")):
            yield from [(one.arg, one.value) for one in node.keywords if one.arg]


def _pairs(pairs: Iterable[tuple[ast.expr, ast.expr]]) -> Iterator[tuple[str, ast.expr]]:
    for target, value in pairs:
        if name := getattr(target, "id", getattr(target, "attr", "")):
            yield name, value


def _parts(value: ast.expr) -> list[ast.expr]:
    """The spec of a sharding that is written as one expression."""
    if not isinstance(value, ast.Call) or value.keywords:
        return []
    return [one for one in value.args if isinstance(one, ast.Call)]


def _range(node: ast.expr) -> Range:
    end = node.end_lineno or node.lineno, node.end_col_offset or 0
    return (node.lineno, node.col_offset), end
