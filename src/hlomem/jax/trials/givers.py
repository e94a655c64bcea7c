"""The calls and fields that give a line its axes: where a reviewer would edit a sharding.

In: a line that hands on what it is given, and the lines that were executed. Out: the line where the
source decides: an argument of a call, a keyword, a field. Nothing is executed here.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.errors import CommandError
from hlomem.jax.trials.source_edits import SourceFile

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

_SPEC = "jax.sharding.PartitionSpec"
_MAX_DEPTH = 3
"""Of variables that are assigned other variables."""
_MAX_HOPS = 4
"""Of names that are given what has another name."""


class Row(NamedTuple):
    """A line that gives a name to an expression."""

    line: str
    name: str
    value: ast.expr


class Givers:
    """The lines that give others the sharding they hand on."""

    def __init__(self, executed: Container[str], axes: Container[str]) -> None:
        """`executed` are lines that were going on when shardings were made; `axes` the mesh's."""
        self._executed = executed
        self._axes = axes

    def of(self, line: str) -> tuple[str, ...]:
        """The only line that decides what a line is given, and that of the variable it gives.

        It gives axes, and was seen to be executed. Empty if there is none.
        """
        try:
            file = SourceFile(line.rpartition(":")[0])
        except CommandError:
            return ()
        values, rows = _Values(file), list(_rows(file))
        pending, seen = [line], {line}
        for _ in range(_MAX_HOPS):
            words = set[str]().union(*[given_at(file, int(_number(one))) for one in pending])
            near = [row for row in rows if row.name in words and row.line not in seen]
            found = [
                row
                for row in near
                if row.line in self._executed and values.has_axes(row.value, self._axes)
            ]
            if found:
                is_one = len({row.line for row in found}) == 1
                return (found[0].line, *values.definition(found[0].value)) if is_one else ()
            pending = list(dict.fromkeys([row.line for row in near if row.line in self._executed]))
            seen.update(pending)
        return ()


def _number(line: str) -> str:
    return line.rpartition(":")[2]


def given_at(file: SourceFile, line: int) -> set[str]:
    """The names that calls of a line are given by others: attributes, parameters of its function.

    Variables of that function stand for what they are assigned, or what is gone through.
    """
    scopes = file.scopes_at(line)
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
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0)
        for one in _given(node)
    ]
    found: set[str] = set()
    seen: set[str] = set()
    while pending:
        one = pending.pop()
        if isinstance(one, ast.Attribute):
            found.add(one.attr)
        elif isinstance(one, ast.Tuple | ast.List):
            pending += one.elts
        elif isinstance(one, ast.Starred):
            pending.append(one.value)
        elif isinstance(one, ast.Call):
            pending += _given(one)
        elif isinstance(one, ast.Name) and one.id not in seen:
            seen.add(one.id)
            pending += [assigned[one.id]] if one.id in assigned else []
    return found | (seen & parameters)


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *[keyword.value for keyword in call.keywords]]


def assigned_in(scope: ast.AST) -> dict[str, ast.expr]:
    """The variables of a scope, with what they are assigned last or taken from."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            names = [one.id for one in node.targets if isinstance(one, ast.Name)]
            found |= dict.fromkeys(names, node.value)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            found[node.target.id] = node.iter
    return found


def _rows(file: SourceFile) -> Iterator[Row]:
    """The names of a file, and what it gives them."""
    parameters = dict(_parameters(file))
    for node in ast.walk(file.tree):
        for name, value in _named(node, parameters):
            if name:
                yield Row(f"{file.file}:{value.lineno}", name, value)


def _parameters(file: SourceFile) -> Iterator[tuple[str, tuple[list[str], str]]]:
    """The parameters of functions and classes by position, and the one for all others."""
    for node in ast.walk(file.tree):
        own = node.args if isinstance(node, ast.FunctionDef) else None
        name = node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else ""
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                own = part.args
        if own is not None:
            names = [one.arg for one in (*own.posonlyargs, *own.args) if one.arg != "self"]
            yield name, (names, own.vararg.arg if own.vararg else "")
        elif isinstance(node, ast.ClassDef):
            fields = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
            yield name, ([one.id for one in fields if isinstance(one, ast.Name)], "")


def _named(
    node: ast.AST, parameters: Mapping[str, tuple[list[str], str]]
) -> list[tuple[str, ast.expr]]:
    match node:
        case ast.Dict():
            pairs = zip(node.keys, node.values, strict=True)
            return [(_constant(key), value) for key, value in pairs if key is not None]
        case ast.Call():
            name = ast.unparse(node.func).rpartition(".")[2]
            own, rest = parameters.get(name, ([], ""))
            positions = [*own, *[rest] * len(node.args)]
            named = [(one.arg, one.value) for one in node.keywords if one.arg is not None]
            return [*zip(positions, node.args, strict=False), *named]
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

    def definition(self, value: ast.expr) -> list[str]:
        """The line that a variable is assigned at."""
        given = self._assigned.get(value.id) if isinstance(value, ast.Name) else None
        return [] if given is None else [f"{self._file.file}:{given.lineno}"]

    def has_axes(self, value: ast.expr, axes: Container[str], depth: int = _MAX_DEPTH) -> bool:
        """Whether an expression names axes, or has a name or None for each of several."""
        if isinstance(value, ast.Name):
            given = self._assigned.get(value.id)
            return given is not None and depth > 0 and self.has_axes(given, axes, depth - 1)
        if isinstance(value, ast.Constant):
            return value.value in axes
        if isinstance(value, ast.Call) and not self._is_spec(value.func):
            return False
        parts = _given(value) if isinstance(value, ast.Call) else getattr(value, "elts", [])
        return any(
            self.has_axes(one, axes, depth) or (isinstance(one, ast.Constant) and one.value is None)
            for one in parts
        ) or (len(parts) > 1 and all(map(_constant, parts)))

    def _is_spec(self, function: ast.expr) -> bool:
        return self._file.resolved(ast.unparse(function)) == _SPEC
