"""Constraints in Python source: those whose values are not used, and functions that only ask.

In: a `SourceFile`. Out: calls of `with_sharding_constraint`, or of functions of the file that call
it, with the edits that have their values used. Nothing is executed here.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlomem.base.errors import CommandError
from hlomem.jax.trials.source_edits import CONSTRAINT, MAPS, Edit, SourceFile, own_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda"

_ASKING = (CONSTRAINT, "with_logical_constraint", "reshard")
_MAX_DEPTH = 3
_NAMED = (ast.Name, ast.Attribute, ast.Subscript)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Unused(NamedTuple):
    """A constraint whose value is not used."""

    call: ast.Call
    value: ast.expr
    """The expression that it is put on."""
    statement: ast.Expr | ast.Assign


def unused_constraints(file: SourceFile, dead: Sequence[int] = ()) -> list[Unused]:
    """Constraints on names, written as statements, or assigned to a name that is not read.

    And those of lines whose values a trace was seen not to use.
    """
    found = []
    for statement in ast.walk(file.tree):
        if not isinstance(statement, ast.Expr | ast.Assign):
            continue
        call = statement.value
        value = _constrained(file, call)
        if not isinstance(call, ast.Call) or not isinstance(value, _NAMED):
            continue
        is_dead = statement.lineno in dead or isinstance(statement, ast.Expr)
        if is_dead or (isinstance(statement, ast.Assign) and not _is_read(file, statement)):
            found.append(Unused(call, value, statement))
    return found


def use_constraints(file: SourceFile, line: int) -> list[Edit]:
    """The constraints of a line whose values are not used, assigned to what they are put on."""
    edits = []
    for unused in unused_constraints(file, (line,)):
        if unused.statement.lineno == line:
            start = file.range_of(unused.call)[0]
            if isinstance(unused.statement, ast.Assign):
                start = file.range_of(unused.statement.targets[0])[0]
            edits.append(Edit(file.file, start, start, f"{file.source_of(unused.value)} = "))
    return edits


def _constrained(file: SourceFile, call: ast.expr, depth: int = _MAX_DEPTH) -> ast.expr | None:
    """The expression that a call puts a constraint on; None for others."""
    if not isinstance(call, ast.Call):
        return None
    name = ast.unparse(call.func).rpartition(".")[2]
    if name in MAPS and len(call.args) > 1 and _asks(file, call.args[0], depth):
        return call.args[1]
    return call.args[0] if call.args and _asks(file, call.func, depth) else None


def _asks(file: SourceFile, function: ast.expr, depth: int) -> bool:
    """Whether a function is `with_sharding_constraint`, or one of the file that returns its.

    The latter at the end of a few calls, one of another.
    """
    if isinstance(function, ast.Lambda):
        return _is_constraint(function.body)
    name = ast.unparse(function)
    if name.rpartition(".")[2] in _ASKING:
        return True
    return name.isidentifier() and any(
        _is_constraint(part) or (depth and _constrained(file, part, depth - 1) is not None)
        for one in _called(file, name)
        for part in _returned(one)
    )


def _called(file: SourceFile, name: str) -> Iterator[Function]:
    """The functions of a file that a name may mean."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            yield node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            yield from [node.value] if name in names else []


def _returned(function: Function) -> list[ast.expr]:
    if isinstance(function, ast.Lambda):
        return [function.body]
    returns = [node for node in own_nodes(function) if isinstance(node, ast.Return)]
    return [node.value for node in returns if node.value is not None]


def _is_constraint(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _ASKING


def _is_read(file: SourceFile, statement: ast.Assign) -> bool:
    """Whether a name that is assigned is read after that, in the function it is in."""
    names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
    if len(names) != len(statement.targets):
        return True
    last = statement.end_lineno or statement.lineno
    scope = next(iter(file.scopes_at(statement.lineno)))
    return any(
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and node.id in names
        and (node.lineno > last or _is_loop_around(scope, statement, node))
        for node in ast.walk(scope)
    )


def _is_loop_around(scope: ast.AST, statement: ast.stmt, node: ast.AST) -> bool:
    """Whether a loop runs a statement and another node, so that either may come first."""
    loops = [loop for loop in ast.walk(scope) if isinstance(loop, ast.For | ast.While)]
    inside = [list(ast.walk(loop)) for loop in loops]
    return any(statement in nodes and node in nodes for nodes in inside)


def is_handed_back(file_name: str, line: int) -> bool:
    """Whether a line is of what a function returns: its caller may use it or not."""
    try:
        file = SourceFile(file_name)
    except CommandError:
        return False
    return any(
        isinstance(node, ast.Return | ast.Lambda) and node.lineno <= line <= (node.end_lineno or 0)
        for scope in file.scopes_at(line)[:1]
        for node in ast.walk(scope)
    )


def is_asked_by_caller(file_name: str, line: int) -> bool:
    """Whether a line puts, on what its function is given, a sharding that it is given, too."""
    try:
        file = SourceFile(file_name)
    except CommandError:
        return False
    for function in ast.walk(file.tree):
        if not isinstance(function, _FUNCTIONS):
            continue
        own = function.args
        given = {one.arg for one in (*own.posonlyargs, *own.args, *own.kwonlyargs)}
        given |= {one.arg for one in (own.vararg, own.kwarg) if one is not None}
        for call in _returned(function):
            is_here = isinstance(call, ast.Call) and call.lineno <= line <= (call.end_lineno or 0)
            if isinstance(call, ast.Call) and is_here and _is_constraint(call) and call.args:
                value = call.args[0]
                name = value.id if isinstance(value, ast.Name) else ""
                rest = [*call.args[1:], *[keyword.value for keyword in call.keywords]]
                others = given - {name, "mesh"}
                return name in given and not others.isdisjoint(_depends_on(function, rest))
    return False


def asks_what_divides(file_name: str, line: int) -> bool:
    """Whether the function of a line, or one of the file that it calls, tests what divides what."""
    try:
        file = SourceFile(file_name)
    except CommandError:
        return False
    around = [
        node
        for node in ast.walk(file.tree)
        if isinstance(node, _FUNCTIONS) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    if not around:
        return False
    function = max(around, key=lambda node: (node.lineno, node.col_offset))
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    names = {one.id for one in calls if isinstance(one, ast.Name)}
    names |= {one.attr for one in calls if isinstance(one, ast.Attribute)}
    called = [one for name in sorted(names) for one in _called(file, name)]
    return any(has_remainder(one) for one in (function, *called))


def has_remainder(code: ast.AST) -> bool:
    """Whether code computes a remainder, which `%` of a text does not."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and not isinstance(node.left, ast.JoinedStr)
        and not (isinstance(node.left, ast.Constant) and isinstance(node.left.value, str))
        for node in ast.walk(code)
    )


def _depends_on(function: Function, expressions: list[ast.expr]) -> set[str]:
    """The names that expressions are made of, and what those are assigned in a function."""
    names: set[str] = set()
    pending = list(expressions)
    while pending:
        found = {node.id for node in ast.walk(pending.pop()) if isinstance(node, ast.Name)} - names
        names |= found
        pending += [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and any(
                isinstance(part, ast.Name) and part.id in found
                for target in node.targets
                for part in ast.walk(target)
            )
        ]
    return names
