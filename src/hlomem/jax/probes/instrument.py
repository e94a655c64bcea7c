"""The user's sources with a function around each expression that may decide a sharding.

In: the text of a module. Out: its code, in which `LEVER(key, value)` stands for such an expression.
Lines stay as they are, so that frames are those of the user's own text.
"""

from __future__ import annotations

import ast
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, NamedTuple

from hlomem.jax.compile.frames import is_users

if TYPE_CHECKING:
    from types import CodeType

LEVER = "__hlomem_lever__"
USE = "use"
"""The syntax of a name that a value is handed on by: a lever if that is a sharding, or axes."""
TEST = "test"
"""The syntax of what is asked: a lever if the answer is true or false."""
CALLEE = "callee"
"""The syntax of what is called with one argument: a lever if it only changes a tree's leaves."""
SUM = "sum"
"""The syntax of what is computed of two operands."""
_MIN_NUMBER = 9
"""Smaller ones are rarely the size of a dimension."""
_MAX_TEXT = 200
_SKIPPED_FIELDS = frozenset({"annotation", "returns", "type_params", "pattern", "format_spec"})
_POLICIES = "checkpoint_policies"
_ANCHORED = "match"
_NAMED = (ast.Name, ast.Attribute, ast.Subscript)
_DISPLAYS = (ast.Tuple, ast.List, ast.Set, ast.Dict)


class Key(NamedTuple):
    """The position of an expression, and its syntax."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    syntax: str
    """`constant`, `call`, `name`, `use`, `test`, `display`, `sum` or `callee`."""

    @property
    def begin(self) -> tuple[int, int]:
        return self.line, self.column

    @property
    def end(self) -> tuple[int, int]:
        return self.end_line, self.end_column

    def is_in(self, other: Key) -> bool:
        """Whether another expression has it inside."""
        return self.file == other.file and other.begin <= self.begin and self.end <= other.end

    def text(self) -> str:
        return "|".join(map(str, self))


def read_key(text: str) -> Key:
    """The key of its text."""
    file, *numbers, syntax = text.rsplit("|", 5)
    line, column, end_line, end_column = map(int, numbers)
    return Key(file, line, column, end_line, end_column, syntax)


class _Wrapper(ast.NodeTransformer):
    """Puts the function around expressions; those inside others, too."""

    def __init__(self, file: str, tree: ast.Module) -> None:
        self._file = file
        self._wholes = _wholes(tree)
        self._constants = _constants(tree)
        self._rests = _rests(tree)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, value in ast.iter_fields(node):
            if name in _SKIPPED_FIELDS:
                continue
            if isinstance(value, list):
                value[:] = [self._child(node, name, one) for one in value]
            elif isinstance(value, ast.AST):
                setattr(node, name, self._child(node, name, value))
        return node

    def _child(self, parent: ast.AST, field: str, node: object) -> object:
        if not isinstance(node, ast.AST):
            return node
        if isinstance(node, ast.JoinedStr) or (
            isinstance(parent, ast.Subscript) and field == "slice"
        ):
            return node
        if isinstance(parent, ast.Expr) and isinstance(node, ast.Constant):
            return node  # a docstring
        syntax = self._syntax(parent, field, node)
        visited = self.visit(node)
        return self._wrapped(visited, syntax) if syntax else visited

    def _syntax(self, parent: ast.AST, field: str, node: ast.AST) -> str:
        """The kind of lever that an expression is; empty if it is not one."""
        if isinstance(parent, ast.Call) and field == "func" and _is_of_one(parent):
            return CALLEE
        if isinstance(node, ast.Compare) or (
            isinstance(node, ast.Call) and _is_asked(parent, field)
        ):
            return TEST
        if isinstance(node, ast.Constant):
            is_left_out = node.value is None and _is_filling(parent)
            return "constant" if _is_deciding(node.value) and not is_left_out else ""
        if isinstance(parent, ast.arguments) and not isinstance(node, ast.BinOp):
            return ""  # the caller leaves it out
        if isinstance(node, ast.Call):
            return "call" if not node.keywords and all(map(self._is_literal, node.args)) else ""
        if isinstance(node, _NAMED) and isinstance(node.ctx, ast.Load):
            if isinstance(node, ast.Attribute) and node.attr == _ANCHORED:
                return "name"  # of a pattern, only the beginning of a path
            is_callers = isinstance(parent, ast.Starred) and _last_name(node) in self._rests
            if is_callers or not _is_value(parent, field):
                return ""
            is_named = _last_name(node) in self._wholes or _is_of_policies(node)
            return "name" if is_named or _is_made_of_nothing(parent) else USE
        if isinstance(node, _DISPLAYS) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return "display"
        return SUM if isinstance(node, ast.BinOp) else ""

    def _is_literal(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Tuple | ast.List):
            return all(map(self._is_literal, node.elts))
        if isinstance(node, ast.Name):
            return node.id in self._constants
        return isinstance(node, ast.Constant)

    def _wrapped(self, node: ast.expr, syntax: str) -> ast.expr:
        key = Key(
            self._file,
            node.lineno,
            node.col_offset,
            node.end_lineno or node.lineno,
            node.end_col_offset or 0,
            syntax,
        )
        function = ast.copy_location(ast.Name(LEVER, ast.Load()), node)
        place = ast.copy_location(ast.Constant(key.text()), node)
        return ast.copy_location(ast.Call(function, [place, node], []), node)


def _is_of_one(call: ast.Call) -> bool:
    """Whether a function is called with one argument, which is more than a word or a number."""
    if call.keywords or len(call.args) != 1 or not isinstance(call.func, ast.Name | ast.Attribute):
        return False
    return not isinstance(call.args[0], ast.Starred | ast.Constant | ast.JoinedStr)


def _is_deciding(value: object) -> bool:
    if isinstance(value, str):
        return len(value) < _MAX_TEXT
    if isinstance(value, bool) or value is None:
        return True
    return isinstance(value, int | float) and value >= _MIN_NUMBER


def _is_asked(parent: ast.AST, field: str) -> bool:
    """Whether an expression is a condition, or a part of one."""
    match parent:
        case ast.If() | ast.IfExp():
            return field == "test"
        case ast.comprehension():
            return field == "ifs"
        case ast.BoolOp():
            return True
        case ast.UnaryOp():
            return isinstance(parent.op, ast.Not)
        case _:
            return False


def _is_filling(parent: ast.AST) -> bool:
    """Whether None only fills up what a caller decides: a default, or before others' parts."""
    if isinstance(parent, ast.Call | ast.Tuple | ast.List):
        parts = parent.args if isinstance(parent, ast.Call) else parent.elts
        return any(isinstance(one, ast.Starred) for one in parts)
    return isinstance(parent, ast.arguments)


def _constants(tree: ast.Module) -> frozenset[str]:
    """The names of a module's constants, as of axes."""
    return frozenset(
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    )


def _rests(tree: ast.Module) -> frozenset[str]:
    """The names of parameters that take the rest of what a caller gives."""
    every = [node for node in ast.walk(tree) if isinstance(node, ast.arguments)]
    return frozenset(one.vararg.arg for one in every if one.vararg is not None)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _word(node.slice)
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _word(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _wholes(tree: ast.AST) -> frozenset[str]:
    """The names that a file gives to shardings that split nothing: their use is the choice."""
    named: list[tuple[str, ast.expr | None]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                named += [
                    (_last_name(one), value) for one, value in zip(names, values, strict=False)
                ]
            case ast.Assign():
                named += [(_last_name(target), node.value) for target in node.targets]
            case ast.AnnAssign():
                named.append((_last_name(node.target), node.value))
            case ast.keyword():
                named.append((node.arg or "", node.value))
            case ast.Dict():
                named += zip(map(_word, node.keys), node.values, strict=True)
    return frozenset(name for name, value in named if name and _is_whole(value))


def _is_whole(value: ast.expr | None) -> bool:
    """Whether an expression makes something of nothing: `P()`, `NamedSharding(mesh, P(None))`."""
    if not isinstance(value, ast.Call) or value.keywords:
        return False
    parts = [one for one in value.args if not isinstance(one, ast.Name | ast.Attribute)]
    is_of_mesh = any(isinstance(one, ast.Call) for one in parts)
    if len(parts) < len(value.args) and not is_of_mesh:
        return False
    return all(_is_none(one) or _is_whole(one) for one in parts)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_of_policies(node: ast.expr) -> bool:
    """Whether an expression is one of `jax.checkpoint_policies`."""
    return isinstance(node, ast.Attribute) and _last_name(node.value) == _POLICIES


def _is_made_of_nothing(parent: ast.AST) -> bool:
    """Whether an expression is called without arguments for a field that nothing is given for."""
    return isinstance(parent, ast.keyword) and parent.arg == "default_factory"


def _is_value(parent: ast.AST, field: str) -> bool:
    """Whether an expression is handed on: to a call, a name, a table, or out of a function."""
    match parent:
        case ast.Call():
            return field == "args"
        case ast.Starred():
            return True
        case ast.keyword() | ast.Return() | ast.Assign() | ast.AnnAssign() | ast.Lambda():
            return field in ("value", "body")
        case ast.Dict():
            return field == "values"
        case ast.Tuple() | ast.List():
            return field == "elts"
        case ast.IfExp() | ast.BoolOp():
            return field in ("body", "orelse", "values")
        case _:
            return False


def instrumented(text: str, file: str) -> CodeType:
    """The code of a module, its levers wrapped."""
    tree = ast.parse(text, file)
    _Wrapper(file, tree).visit(tree)
    return SourceFileLoader(file, file).source_to_code(ast.fix_missing_locations(tree), file)


def install() -> None:
    """From now on, import the user's files with their levers wrapped."""
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        if not is_users(self.path):
            return original(self, fullname)
        try:
            return instrumented(self.get_data(self.path).decode(), self.path)
        except (SyntaxError, UnicodeDecodeError, ValueError):
            return original(self, fullname)  # which says what is wrong

    SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]
