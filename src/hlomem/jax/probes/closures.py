"""Functions that others make and return, as decorators do: what they are called for is said there.

In: the key of an expression. Out: whether it stands in such a function.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.jax.probes.instrument import Key

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def is_in_closure(key: Key) -> bool:
    """Whether an expression stands in a function that another returns."""
    return any(begin <= key.line <= end for begin, end in _closures(key.file))


@lru_cache(maxsize=32)
def _closures(file: str) -> tuple[tuple[int, int], ...]:
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError, ValueError):
        return ()
    functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
    return tuple((one.lineno, one.end_lineno or 0) for node in functions for one in _returned(node))


def _returned(function: _Function) -> Iterator[_Function]:
    """The functions inside one that it returns."""
    if isinstance(function, ast.Lambda):
        if isinstance(function.body, ast.Lambda):
            yield function.body
        return
    values = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    names = {value.id for value in values if isinstance(value, ast.Name)}
    for node in ast.walk(function):
        is_named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in names
        if node is not function and isinstance(node, _Function) and (is_named or node in values):
            yield node
