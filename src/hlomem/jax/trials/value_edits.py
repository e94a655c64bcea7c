"""Another value of an expression of the source, as an edit or in words.

In: an expression that decides how arrays are split, and the change that was traced there
(`jax/probes/levers.py`). Out: the edits of its file that have it so; where no edit says it,
the line with the old and the new value.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from hlomem.base.errors import CommandError
from hlomem.hlo.sharding import bare_spec
from hlomem.jax.probes.levers import SWAPPED
from hlomem.jax.probes.tries import ARGUMENT
from hlomem.jax.trials.changes import Change
from hlomem.jax.trials.decided import LINK
from hlomem.jax.trials.source_edits import Edit, SourceFile
from hlomem.report.data.sharding.decision import OtherValue
from hlomem.report.data.sharding.finding import ShardingChange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.jax.probes.deciding import Decided
    from hlomem.jax.probes.instrument import Key

_RESULT = re.compile(r"result(\[|\.|$)")
_BRACKETS = {ast.Tuple: "()", ast.List: "[]", ast.Set: "{}"}
_MAX_WORDS = 60


def value_changes(found: Decided) -> Iterator[Change]:
    """Another value as an edit of the source, if one says it, and without."""
    title = f"another value at {found.line}"
    if edits := edits_of(found):
        yield Change("shard", title, "", LINK, edits=tuple(edits))
    yield Change("shard", title, "", LINK, value=_value(found), code=told(found))


def shardings_of(found: Decided) -> ShardingChange:
    """Another value, with the shardings that arguments and results then have."""
    arguments = {
        name.removeprefix(ARGUMENT): spec
        for name, spec in found.specs.items()
        if name.startswith(ARGUMENT)
    }
    results = {name: spec for name, spec in found.specs.items() if _RESULT.match(name)}
    return ShardingChange(arguments=arguments, results=results, value=_value(found))


def _value(found: Decided) -> OtherValue:
    return OtherValue(key=found.seen.key, change=found.change, site=found.site)


def edits_of(found: Decided) -> list[Edit]:
    """The edits of the source; none where only a call of several is meant, or nothing says it."""
    if found.site:
        return []
    try:
        file = SourceFile(found.key.file)
    except CommandError:
        return []
    node = _at(file, found.key)
    word, _, about = found.change.partition(":")
    if node is None:
        return []
    if word == "drop":
        return _without(file, node)
    if word == "add" and "=" not in about and isinstance(node, ast.Tuple | ast.List | ast.Set):
        item = _in_quotes_of(file, node, repr(about))
        return [_of_items(file, node, [*map(file.source_of, node.elts), item])]
    if word == "spec" and found.seen.kind in ("spec", "sharding"):
        return _with_spec(file, node, about, is_sharding=found.seen.kind == "sharding")
    text = _text_of(found.change) if isinstance(node, ast.Constant) else ""
    if not text:
        return []
    nodes = [node]
    if word == "every":
        said = about.partition(SWAPPED)[0]
        every = [one for one in ast.walk(file.tree) if isinstance(one, ast.Constant)]
        nodes = [one for one in every if one.value == said]
    return [Edit(file.file, *file.range_of(one), _in_quotes_of(file, one, text)) for one in nodes]


def told(found: Decided) -> str:
    """The change in words, with its line."""
    try:
        file = SourceFile(found.key.file)
        node = _at(file, found.key)
        written = "" if node is None else " ".join(file.source_of(node).split())
    except CommandError:
        written = ""
    short = written if len(written) < _MAX_WORDS else f"{written[:_MAX_WORDS]}…"
    calls = f", as {found.site} calls it" if found.site else ""
    return f"at {found.key.file}:{found.key.line}{calls}:\n{_words(found, short)}"


def _words(found: Decided, written: str) -> str:
    word, _, about = found.change.partition(":")
    one, _, other = about.partition(SWAPPED)
    match word:
        case "true" | "false":
            return f"as if `{written}` were {word == 'true'}"
        case "flip":
            return f"not {written}"
        case "add":
            return f"{written} with {one.replace('=', ' as ')}, too"
        case "drop" | "unname":
            return f"without {one!r}"
        case "swap":
            return f"the axis of {one!r} for {other!r}, and the other way round"
        case "search":
            return "re.search instead of re.match"
        case "skip":
            return f"without the call of `{written}`"
        case "regather":
            return f"{written}, but without what is gathered"
        case "spec" | "same":
            return f"{one} instead of `{written}`"
        case _:
            return f"{_text_of(found.change)} instead of `{written}`"


def _text_of(change: str) -> str:
    """The new value as Python writes it; empty if it is more than a word or a number."""
    word, _, about = change.partition(":")
    match word:
        case "axis" | "text":
            return repr(about)
        case "every":
            return repr(about.partition(SWAPPED)[2])
        case "axes":
            return repr(tuple(about.split(",")))
        case "none":
            return "None"
        case "number" | "least":
            return about
        case _:
            return ""


def _at(file: SourceFile, key: Key) -> ast.expr | None:
    """The outermost expression at a place."""
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.expr) or (node.lineno, node.col_offset) != key.begin:
            continue
        if (node.end_lineno, node.end_col_offset) == key.end:
            return node
    return None


def _without(file: SourceFile, item: ast.expr) -> list[Edit]:
    """A collection without one of its items."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set) and item in node.elts:
            left = [file.source_of(one) for one in node.elts if one is not item]
            return [_of_items(file, node, left)]
    return []


def _of_items(file: SourceFile, node: ast.Tuple | ast.List | ast.Set, items: list[str]) -> Edit:
    """A collection of other items."""
    is_single = isinstance(node, ast.Tuple) and len(items) == 1
    inside = ", ".join(items) + ("," if is_single else "")
    start, end = file.range_of(node)
    is_bare = isinstance(node, ast.Tuple) and not file.text[start:end].startswith("(")
    brackets = "" if is_bare and items else _BRACKETS[type(node)]
    return Edit(file.file, start, end, brackets[:1] + inside + brackets[1:])


def _in_quotes_of(file: SourceFile, node: ast.expr, text: str) -> str:
    """Code in the quotes that an expression is written with, or most of its file."""
    own = file.source_of(node)
    around = own if "'" in own or '"' in own else file.text
    return text.replace("'", '"') if around.count('"') > around.count("'") else text


def _with_spec(file: SourceFile, node: ast.expr, spec: str, *, is_sharding: bool) -> list[Edit]:
    """Another spec, or a sharding with it over the same mesh."""
    name, imports = file.name_of("jax.sharding.PartitionSpec")
    text = _in_quotes_of(file, node, f"{name}({bare_spec(spec)})")
    if not is_sharding:
        return [*imports, Edit(file.file, *file.range_of(node), text)]
    if isinstance(node, ast.Call):
        named = [one.value for one in node.keywords if one.arg == "spec"]
        specs = [*node.args[1:2], *named]
        if len(specs) != 1 or not ast.unparse(node.func).endswith("NamedSharding"):
            return []
        return [*imports, Edit(file.file, *file.range_of(specs[0]), text)]
    if not isinstance(node, ast.Name | ast.Attribute):
        return []
    sharding, more = file.name_of("jax.sharding.NamedSharding")
    start, end = file.range_of(node)
    mesh = file.mesh_at(node.lineno) or f"{file.text[start:end]}.mesh"
    made = f"{sharding}({mesh}, {text})"
    return [*imports, *more, Edit(file.file, start, end, made)]
