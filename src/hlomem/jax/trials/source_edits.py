"""Edits of Python source: a decorator, a keyword of a call, another function called.

In: the text of a file, and a function or a call in it, as a stack frame names them. Out: `Edit`s,
ranges of the text with what replaces them; several are applied together, and drawn as one diff.
Nothing is executed here.
"""

from __future__ import annotations

import ast
import difflib
from bisect import bisect_right
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from hlomem.base.errors import CommandError
from hlomem.base.source import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hlomem.report.data.sharding.finding import Place

Framework: TypeAlias = Literal["linen", "nnx", "equinox", "jax"]
Callable_: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda"

_MODULES: Mapping[Framework, str] = {
    "linen": "flax.linen",
    "nnx": "flax.nnx",
    "equinox": "equinox",
    "jax": "jax",
}


CONSTRAINT = "with_sharding_constraint"
MAPS = ("map", "tree_map")
_SIMPLE = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant, ast.Tuple, ast.List)


class Edit(NamedTuple):
    """A range of a file's text, and what replaces it."""

    file: str
    start: int
    end: int
    text: str


class SourceFile:
    """The text of a file with its syntax tree."""

    def __init__(self, file: str) -> None:
        self.file = file
        try:
            self.text = Path(file).read_text()
            self.tree = ast.parse(self.text)
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            raise CommandError(f"{visible(file)} cannot be read as Python: {error}") from error

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        for line in self.text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def _offset(self, line: int, column: int) -> int:
        """The position of a line and a column in UTF-8, as syntax trees have them."""
        start = self._line_starts[line - 1]
        text = self.text[start : self._line_starts[line]]
        return start + len(text.encode()[:column].decode())

    def range_of(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        end = self._offset(node.end_lineno, node.end_col_offset)
        return self._offset(node.lineno, node.col_offset), end

    def source_of(self, node: ast.expr) -> str:
        start, end = self.range_of(node)
        return self.text[start:end]

    @cached_property
    def _functions(self) -> dict[str, list[tuple[Callable_, ast.ClassDef | None]]]:
        """Functions by their qualified names, with the class a method is of."""
        found: dict[str, list[tuple[Callable_, ast.ClassDef | None]]] = {}
        pending: list[tuple[ast.AST, str, ast.ClassDef | None]] = [(self.tree, "", None)]
        while pending:
            node, prefix, owner = pending.pop()
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                    own = "<lambda>" if isinstance(child, ast.Lambda) else child.name
                    found.setdefault(f"{prefix}{own}", []).append((child, owner))
                    pending.append((child, f"{prefix}{own}.<locals>.", None))
                elif isinstance(child, ast.ClassDef):
                    pending.append((child, f"{prefix}{child.name}.", child))
                else:
                    pending.append((child, prefix, owner))
        return found

    def function(self, name: str, line: int) -> Callable_ | None:
        """The function of a qualified name whose code has a line."""
        return next((node for node, _ in self._functions.get(name, ()) if _has(node, line)), None)

    def framework(self, name: str, line: int) -> Framework:
        """The framework whose module has a method; `jax` for other functions."""
        owner = next(
            (owner for node, owner in self._functions.get(name, ()) if _has(node, line)), None
        )
        classes = {
            node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)
        }
        seen: set[str] = set()
        pending = [] if owner is None else [owner]
        while pending:
            for base in pending.pop().bases:
                words = self.resolved(ast.unparse(base))
                for framework, module in _MODULES.items():
                    if framework != "jax" and words.startswith(f"{module}."):
                        return framework
                if words in classes and words not in seen:
                    seen.add(words)
                    pending.append(classes[words])
        return "jax"

    @cached_property
    def _imported(self) -> dict[str, str]:
        """The modules and functions by the names that imports give them: `nn` for `flax.linen`."""
        names: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    names[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return names

    def resolved(self, words: str) -> str:
        """A dotted name by what imports say it is."""
        first, dot, rest = words.partition(".")
        return self._imported.get(first, first) + dot + rest

    def name_of(self, module: str) -> tuple[str, list[Edit]]:
        """How a module is called in this file, and the edit that imports it if it is not yet."""
        for name, stands_for in self._imported.items():
            if stands_for == module:
                return name, []
        for name, stands_for in self._imported.items():
            if module.startswith(f"{stands_for}."):
                return name + module.removeprefix(stands_for), []
        package, _, last = module.rpartition(".")
        text = f"from {package} import {last}\n" if package else f"import {module}\n"
        return last, [self.insert_after_imports(text)]

    def insert_after_imports(self, text: str) -> Edit:
        """New lines after the imports of the file."""
        last = 0
        for node in self.tree.body:
            is_remark = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if isinstance(node, ast.Import | ast.ImportFrom) or (is_remark and not last):
                last = node.end_lineno or last
        position = self._line_starts[last]
        return Edit(self.file, position, position, text)

    def decorate(self, node: Callable_, decorator: str) -> Edit:
        """A decorator above a function; around a lambda."""
        if isinstance(node, ast.Lambda):
            start, end = self.range_of(node)
            return Edit(self.file, start, end, f"{decorator}({self.text[start:end]})")
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        position = self._line_starts[first - 1]
        indent = self.text[position : position + node.col_offset]
        return Edit(self.file, position, position, f"{indent}@{decorator}\n")

    def calls(self, names: Iterable[str]) -> Iterator[ast.Call]:
        """The calls of functions, by the last part of their names."""
        wanted = set(names)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in wanted:
                yield node

    def scans_at(self, name: str, line: int) -> list[ast.Call]:
        """The calls of `jax.lax.scan` on a line of a function."""
        node = self.function(name, line)
        return [
            call
            for call in self.calls(["scan"])
            if node is not None
            and call.lineno <= line <= (call.end_lineno or call.lineno)
            and self.resolved(ast.unparse(call.func)) == "jax.lax.scan"
        ]

    def call_another(self, call: ast.Call, function: str) -> Edit:
        """The same call of another function."""
        return Edit(self.file, *self.range_of(call.func), function)

    def wrap_function(
        self, call: ast.Call, wrapper: str, options: Sequence[str] = ()
    ) -> Edit | None:
        """The function that a call is given, first or as `f`, wrapped."""
        given = [*call.args[:1], *[one.value for one in call.keywords if one.arg == "f"]]
        if not given or isinstance(given[0], ast.Starred):
            return None
        start, end = self.range_of(given[0])
        inside = ", ".join([self.text[start:end], *options])
        return Edit(self.file, start, end, f"{wrapper}({inside})")

    def set_keyword(self, call: ast.Call, name: str, value: str) -> Edit:
        """A keyword of a call, new or with another value."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return Edit(self.file, *self.range_of(keyword.value), value)
        end = self.range_of(call)[1] - 1
        inside = self.text[:end].rstrip()
        lead = "" if inside.endswith((",", "(")) else ","
        lead += "" if inside.endswith("(") else " "
        position = len(inside)
        return Edit(self.file, position, position, f"{lead}{name}={value}")

    def other_numbers(self, number: int, other: int) -> list[Edit]:
        """Another number wherever one is written."""
        return [
            Edit(self.file, *self.range_of(node), str(other))
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value == number
        ]

    def rounded_up(self, place: Place, multiple: int) -> Edit | None:
        """The number that the expression at a place comes to, rounded up."""
        node = self._expression(place)
        if node is None:
            return None
        text = f"-(-({self.source_of(node)}) // {multiple}) * {multiple}"
        return Edit(self.file, *self.range_of(node), text)

    def line_of(self, edit: Edit) -> int:
        """The line that an edit begins on."""
        return bisect_right(self._line_starts, edit.start)

    def constrain(self, place: Place, sharding: str) -> Edit | None:
        """The expression at a place, with another sharding; None where there is no expression."""
        node = self._expression(place)
        if node is None:
            return None
        start, end = self.range_of(node)
        constrained = self.text[start:end]
        if isinstance(node, ast.Call) and (place.is_constraint and node.args):
            given = [one.value for one in node.keywords if one.arg == "shardings"]
            shardings = [*node.args[1:2], *given]
            if ast.unparse(node.func).endswith(CONSTRAINT) and shardings:
                return Edit(self.file, *self.range_of(shardings[0]), sharding)
            constrained = self.source_of(self._constrained(node))
        jax, _ = self.name_of("jax")
        text = f"{jax}.lax.{CONSTRAINT}({constrained}, {sharding})"
        return Edit(self.file, start, end, text)

    def leave_out(self, place: Place) -> Edit | None:
        """The value of a constraint at a place, without it; None where there is no call."""
        node = self._expression(place)
        if not isinstance(node, ast.Call) or not place.is_constraint or not node.args:
            return None
        value = self._constrained(node)
        text = self.source_of(value)
        if not isinstance(value, _SIMPLE):
            text = f"({text})"
        return Edit(self.file, *self.range_of(node), text)

    def _constrained(self, call: ast.Call) -> ast.expr:
        """The argument of a helper's call that the helper puts a constraint on, or its first.

        Of `jax.tree.map` it is the tree.
        """
        if ast.unparse(call.func).rpartition(".")[2] in MAPS and len(call.args) > 1:
            return call.args[1]
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        for helper in ast.walk(self.tree):
            if isinstance(helper, ast.FunctionDef) and helper.name == name:
                given = [one.arg for one in (*helper.args.posonlyargs, *helper.args.args)]
                for one in ast.walk(helper):
                    if isinstance(one, ast.Call) and ast.unparse(one.func).endswith(CONSTRAINT):
                        value = ast.unparse(one.args[0]) if one.args else ""
                        if value in given and given.index(value) < len(call.args):
                            return call.args[given.index(value)]
        return call.args[0]

    def constrain_before(self, place: Place, shardings: Sequence[str]) -> Edit | None:
        """The value that a constraint at a place is put on, under others first."""
        node = self._expression(place)
        if not isinstance(node, ast.Call) or not place.is_constraint or not node.args:
            return None
        jax, _ = self.name_of("jax")
        text = self.source_of(node.args[0])
        for sharding in shardings:
            text = f"{jax}.lax.{CONSTRAINT}({text}, {sharding})"
        return Edit(self.file, *self.range_of(node.args[0]), text)

    def keyword_line(self, line: int, name: str, position: int | None = None) -> int:
        """The line of a keyword of a call that begins at a line; that line if there is none.

        With a position, that of this part of the keyword's tuple.
        """
        parts = self.keyword_parts(line, name)
        if position is not None and position < len(parts):
            return parts[position]
        return next((value.lineno for value in self._keywords(line, name)), line)

    def assigned_line(self, line: int, name: str, position: int) -> int | None:
        """The line that a part of a keyword's tuple is assigned at, where it is a variable.

        None for other expressions, parameters, and what is assigned more than once.
        """
        for value in self._keywords(line, name):
            parts = value.elts if isinstance(value, ast.Tuple) else [value]
            part = parts[position] if position < len(parts) else None
            if isinstance(part, ast.Name):
                return self._only_assignment(part.id, line)
        return None

    def _only_assignment(self, name: str, line: int) -> int | None:
        for scope in self.scopes_at(line):
            lines = [
                node.lineno
                for node in own_nodes(scope)
                if isinstance(node, ast.Assign)
                and any(isinstance(one, ast.Name) and one.id == name for one in node.targets)
            ]
            if lines:
                return lines[0] if len(lines) == 1 else None
        return None

    def keyword_parts(self, line: int, name: str) -> list[int]:
        """The lines of the parts of a keyword's tuple; none where it is not written as one."""
        for value in self._keywords(line, name):
            return [part.lineno for part in value.elts] if isinstance(value, ast.Tuple) else []
        return []

    def _keywords(self, line: int, name: str) -> list[ast.expr]:
        return [
            keyword.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call) and node.lineno == line
            for keyword in node.keywords
            if keyword.arg == name
        ]

    def _expression(self, place: Place) -> ast.expr | None:
        """The expression that begins and ends at a place, or the largest on its line."""
        found = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.expr)
            and (node.lineno, node.col_offset) == (place.line, place.column)
        ]
        end = (place.end_line, place.end_column)
        exact = [node for node in found if (node.end_lineno, node.end_col_offset) == end]
        return next(iter(exact or found), None)

    def variables_at(self, line: int) -> set[str]:
        """The variables of a function that are assigned what a call at a line makes."""
        return {
            target.id
            for scope in self.scopes_at(line)[:-1]
            for node in own_nodes(scope)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            if node.lineno <= line <= (node.end_lineno or line)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def names_at(self, line: int) -> set[str]:
        """The variables that are read at a line."""
        return {
            node.id
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Name) and node.lineno == line and isinstance(node.ctx, ast.Load)
        }

    def mesh_at(self, line: int) -> str:
        """The name of a mesh that code at a line can use; empty if none is known."""
        names: dict[str, None] = {}
        for scope in self.scopes_at(line):
            for node in ast.walk(scope):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                    made = ast.unparse(node.value.func).rpartition(".")[2].lower()
                    if made.endswith("mesh") and isinstance(node.targets[0], ast.Name):
                        names.setdefault(node.targets[0].id)
                elif isinstance(node, ast.arg) and node.arg == "mesh":
                    names.setdefault(node.arg)
        visible_ = [name for name in names if self._is_visible(name, line)]
        return next(iter(visible_), "")

    def scopes_at(self, line: int) -> list[ast.AST]:
        """The functions around a line, innermost first, and the module."""
        around = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _has(node, line)
        ]
        return [*sorted(around, key=lambda node: -node.lineno), self.tree]

    def _is_visible(self, name: str, line: int) -> bool:
        """Whether a name is bound in the module or in a function around a line."""
        for scope in self.scopes_at(line):
            for node in own_nodes(scope):
                targets = node.targets if isinstance(node, ast.Assign) else []
                if any(isinstance(one, ast.Name) and one.id == name for one in targets):
                    return True
            if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = scope.args
                every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                if name in {one.arg for one in every}:
                    return True
        return False

    def _jits_of(self, name: str) -> Iterator[tuple[ast.Call | ast.expr, bool]]:
        """The calls that jit a function (True), and its bare decorators (False)."""
        for node in self._definitions(name):
            for decorator in node.decorator_list:
                if self._is_jit(decorator):
                    yield decorator, False
                elif isinstance(decorator, ast.Call) and (
                    self._is_jit(decorator.func)
                    or (decorator.args and self._is_jit(decorator.args[0]))
                ):
                    yield decorator, True
        around, _, last = name.rpartition("<locals>.")
        places: list[ast.AST] = [*self._definitions(around.removesuffix("."))]
        for call in (inner for place in places or [self.tree] for inner in ast.walk(place)):
            if isinstance(call, ast.Call) and self._is_jit(call.func) and call.args:
                named = [one.id for one in ast.walk(call.args[0]) if isinstance(one, ast.Name)]
                if last in named:
                    yield call, True

    def _definitions(self, name: str) -> list[ast.FunctionDef]:
        found = self._functions.get(name, ())
        return [node for node, _ in found if isinstance(node, ast.FunctionDef)]

    def _is_jit(self, node: ast.expr) -> bool:
        return self.resolved(ast.unparse(node)) in {"jax.jit", "flax.nnx.jit"}

    def donate(self, function: str, names: Sequence[str]) -> Edit | None:
        """The arguments of a jitted function, by its qualified name, donated.

        None where it is not jitted in this file.
        """
        inside = ", ".join(f'"{name}"' for name in names)
        value = f"({inside},)" if len(names) == 1 else f"({inside})"
        for node, is_call in self._jits_of(function):
            if not is_call:
                start, end = self.range_of(node)
                text = f"{self.text[start:end]}(donate_argnames={value})"
                return Edit(self.file, start, end, text)
            assert isinstance(node, ast.Call)
            if any(keyword.arg == "donate_argnums" for keyword in node.keywords):
                numbers = self._positions(function, names)
                return self.set_keyword(node, "donate_argnums", numbers) if numbers else None
            return self.set_keyword(node, "donate_argnames", value)
        return None

    def _positions(self, function: str, names: Sequence[str]) -> str:
        """The numbers of arguments; empty if the function is not in this file, or lacks some."""
        for node in self._definitions(function):
            own = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            if set(names) <= set(own):
                numbers = ", ".join(str(own.index(name)) for name in names)
                return f"({numbers},)" if len(names) == 1 else f"({numbers})"
        return ""

    def positions(self, node: Callable_, names: Sequence[str]) -> list[int]:
        """The numbers of those arguments that can be given by position."""
        own = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        return [number for number, name in enumerate(own) if name in names]


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope outside the functions and classes in it."""
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending += ast.iter_child_nodes(node)


def _has(node: Callable_, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def apply(edits: Iterable[Edit]) -> dict[str, str] | None:
    """The new texts of files; None where edits are in each other's way, or make no Python."""
    texts: dict[str, str] = {}
    by_file: dict[str, list[Edit]] = {}
    for edit in dict.fromkeys(edits):
        by_file.setdefault(edit.file, []).append(edit)
    for file, own in by_file.items():
        text, last = Path(file).read_text(), None
        for edit in sorted(own, key=lambda edit: (edit.start, edit.end), reverse=True):
            if last is not None and edit.end > last:
                return None
            text = text[: edit.start] + edit.text + text[edit.end :]
            last = edit.start
        try:
            ast.parse(text)
        except SyntaxError:
            return None
        texts[file] = text
    return texts


def draw_diff(texts: Mapping[str, str]) -> str:
    """Files with their new texts as one diff, for `patch` and `git apply`."""
    parts: list[str] = []
    for file, text in texts.items():
        path = Path(file)
        name = str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name
        old = path.read_text().splitlines(keepends=True)
        new = text.splitlines(keepends=True)
        parts += difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", n=1)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in parts)
