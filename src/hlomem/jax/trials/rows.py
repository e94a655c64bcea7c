"""The rows of the user's tables that name an array: where a reviewer would edit its sharding.

In: the names of arrays at fault and of others, as JAX tells them, and the files that their lines
are in. Out: the line where the source gives a sharding to what only those at fault are called: an
entry of a dictionary, a keyword, an attribute, an item. Nothing is executed here.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import CommandError
from hlomem.jax.trials.source_edits import SourceFile

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

_WORD = re.compile(r"[A-Za-z_]\w*")
_SPEC = "jax.sharding.PartitionSpec"
_MAX_DEPTH = 3
"""Of variables that are assigned other variables."""


class Row(NamedTuple):
    """A line that gives a name to an expression."""

    line: str
    name: str
    value: ast.expr


def own_words(faulty: Sequence[str], others: Iterable[str]) -> set[str]:
    """The words of the paths that all arrays at fault have, and none of the others."""
    if not faulty:
        return set()
    common = set.intersection(*[set(_WORD.findall(name)) for name in faulty])
    return common - {word for name in others for word in _WORD.findall(name)}


def row_of(files: Iterable[str], words: Container[str], specs: Iterable[str]) -> str:
    """The only line that gives what has one of these names a sharding; empty if none is."""
    found: dict[str, None] = {}
    wanted = {_bare(spec) for spec in specs}
    for name in dict.fromkeys(files):
        try:
            file = SourceFile(name)
        except CommandError:
            continue
        values = _Values(file)
        found |= {
            row.line: None
            for row in _rows(file)
            if row.name in words and not wanted.isdisjoint(values.of(row.value))
        }
    return next(iter(found)) if len(found) == 1 else ""


def given_at(line: str) -> set[str]:
    """What calls of a line are given by others: attributes, and parameters of its function.

    Variables of that function stand for what they are assigned.
    """
    name, _, number = line.rpartition(":")
    try:
        file = SourceFile(name)
    except CommandError:
        return set()
    scopes = file.scopes_at(int(number))
    parameters = {
        one.arg
        for scope in scopes
        for one in ast.walk(getattr(scope, "args", ast.Pass()))
        if isinstance(one, ast.arg)
    }
    assigned = assigned_in(scopes[0]) if len(scopes) > 1 else {}
    pending = [
        one
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Call) and node.lineno <= int(number) <= (node.end_lineno or 0)
        for one in _given(node)
    ]
    found: set[str] = set()
    seen: set[str] = set()
    while pending:
        one = pending.pop()
        if isinstance(one, ast.Attribute):
            found.add(one.attr)
        elif isinstance(one, ast.Tuple):
            pending += one.elts
        elif isinstance(one, ast.Call):
            pending += _given(one)
        elif isinstance(one, ast.Name) and one.id not in seen:
            seen.add(one.id)
            pending += [assigned[one.id]] if one.id in assigned else []
    return found | (seen & parameters)


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *[keyword.value for keyword in call.keywords]]


def assigned_in(scope: ast.AST) -> dict[str, ast.expr]:
    """The variables of a scope, with what they are assigned last."""
    return {
        target.id: node.value
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _rows(file: SourceFile) -> Iterator[Row]:
    """The names of a file, and what it gives them."""
    parameters = {
        node.name: [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
        for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef)
    }
    for node in ast.walk(file.tree):
        for name, value in _named(node, parameters):
            if name:
                yield Row(f"{file.file}:{value.lineno}", name, value)


def _named(node: ast.AST, parameters: Mapping[str, list[str]]) -> list[tuple[str, ast.expr]]:
    match node:
        case ast.Dict():
            pairs = zip(node.keys, node.values, strict=True)
            return [(_constant(key), value) for key, value in pairs if key is not None]
        case ast.Call():
            own = parameters.get(ast.unparse(node.func), [])
            named = [(one.arg, one.value) for one in node.keywords if one.arg is not None]
            return [*zip(own, node.args, strict=False), *named]
        case ast.Assign():
            return [(_target(target), node.value) for target in node.targets]
        case ast.AnnAssign(value=ast.expr() as value):
            return [(_target(node.target), value)]
        case ast.arguments():
            every = [*node.posonlyargs, *node.args][::-1]
            last = zip(every, node.defaults[::-1], strict=False)
            return [(one.arg, value) for one, value in last]
        case _:
            return []


def _constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _target(target: ast.expr) -> str:
    """The name of an attribute, of an item, or of a variable."""
    if isinstance(target, ast.Attribute):
        return target.attr
    if isinstance(target, ast.Subscript):
        return _constant(target.slice)
    return target.id if isinstance(target, ast.Name) else ""


class _Values:
    """The shardings that expressions of a file may be."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._assigned = assigned_in(file.tree)

    def of(self, value: ast.expr, depth: int = _MAX_DEPTH) -> set[str]:
        """The specs that an expression writes, or that variables in it are assigned."""
        found = set()
        for node in ast.walk(value):
            if isinstance(node, ast.Call) and self._is_spec(node.func):
                found.add(_bare(f"P({', '.join(map(ast.unparse, node.args))})"))
            elif isinstance(node, ast.Name) and depth and node.id in self._assigned:
                found |= self.of(self._assigned[node.id], depth - 1)
        return found

    def _is_spec(self, function: ast.expr) -> bool:
        return self._file.resolved(ast.unparse(function)) == _SPEC


def _bare(spec: str) -> str:
    """A spec without the dimensions at its end that are not split."""
    parts = spec.removeprefix("P(").removesuffix(")").rstrip(", ")
    while parts.endswith("None"):
        parts = parts.removesuffix("None").rstrip(", ")
    return parts
