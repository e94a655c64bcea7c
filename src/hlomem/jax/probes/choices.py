"""The words that might stand instead of another: of the same table, or of the same parameter.

A program names a layout where it uses one, as `Table("items", placement="whole")`; which names
there are is said by the table that has them, by the default, and by other uses.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from hlomem.jax.probes.instrument import read_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hlomem.jax.probes.instrument import Key
    from hlomem.jax.probes.levers import Seen

_MAX_CHOICES = 6
"""Words of one parameter: more are names of things, not ways to lay them out."""

_NAMING = "checkpoint_name"

Place = tuple[str, tuple[int, int]]
"""A file, and where an expression begins."""


def choices_of(every: Sequence[Seen]) -> Mapping[str, list[str]]:
    """For each word that was evaluated, by its key, the others that may stand there."""
    words = {seen.key: read_key(seen.key) for seen in every if seen.kind == "text"}
    kinds = ("rules", "names")
    tables = {read_key(seen.key): _names(seen) for seen in every if seen.kind in kinds}
    slots = {
        place: slot
        for file in dict.fromkeys(key.file for key in words.values())
        for place, slot in _slots(file)
    }
    said: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for seen in every:
        if seen.kind == "text" and (slot := _slot(slots, words[seen.key])):
            said[slot][seen.text] = None
    found: dict[str, list[str]] = {}
    for seen in every:
        if seen.kind != "text" or any(map(words[seen.key].is_in, tables)):
            continue
        own = list(said[_slot(slots, words[seen.key])])
        others = [own] if len(own) <= _MAX_CHOICES else []
        others += [names for names in tables.values() if seen.text in names]
        known = dict.fromkeys(name for names in others for name in names if name != seen.text)
        if 0 < len(known) <= _MAX_CHOICES:
            found[seen.key] = list(known)
    return found


def kept_names(every: Sequence[Seen]) -> list[str]:
    """The names that values were given for policies of `jax.checkpoint`, in their order."""
    files = dict.fromkeys(read_key(seen.key).file for seen in every)
    named = {place for file in files for place, slot in _slots(file) if slot == _NAMING}
    return list(
        dict.fromkeys(
            seen.text
            for seen in every
            if seen.kind == "text" and ((key := read_key(seen.key)).file, key.begin) in named
        )
    )


def _names(rules: Seen) -> list[str]:
    return [line.partition("\t")[0] for line in rules.text.split("\n")]


def _slot(slots: Mapping[Place, str], key: Key) -> str:
    return slots.get((key.file, key.begin), "")


def _slots(file: str) -> Iterator[tuple[Place, str]]:
    """The parameters that the words of a file are given for, or are compared with."""
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError, ValueError):
        return
    fields = {_NAMING: ["", _NAMING], **dict(_signatures(tree))}
    for node in ast.walk(tree):
        for name, value in _pairs(node, fields):
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield (file, (value.lineno, value.col_offset)), name


def _signatures(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """The parameters of functions, and the fields of classes, in their order."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
            yield node.name, [name for name in names if name not in ("self", "cls")]
        elif isinstance(node, ast.ClassDef):
            fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
            yield node.name, [one.id for one in fields if isinstance(one, ast.Name)]


def _pairs(node: ast.AST, fields: Mapping[str, list[str]]) -> Iterable[tuple[str, ast.expr | None]]:
    """The values of a node, with the names of what they are given for."""
    match node:
        case ast.Call():
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            yield from zip(fields.get(called, ()), node.args, strict=False)
            yield from [(one.arg, one.value) for one in node.keywords if one.arg]
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name, node.value
        case ast.arguments():
            names = [one.arg for one in (*node.posonlyargs, *node.args)]
            yield from zip(names[::-1], node.defaults[::-1], strict=False)
            yield from zip([one.arg for one in node.kwonlyargs], node.kw_defaults, strict=True)
        case ast.Compare():
            sides = (node.left, *node.comparators)
            names = [getattr(one, "attr", getattr(one, "id", "")) for one in sides]
            yield from [(name, side) for name in names if name for side in sides]
