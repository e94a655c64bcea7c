"""Buffers as a tree of subtotals: by argument paths, or by operation scopes.

Siblings that differ only in a number are merged: `block_0` and `block_1` become `block_*`.

    params                 86.5 MiB
      ['embed']            62.5 MiB
      ['block_*']          24.0 MiB    2 of that name
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from hlomem.dump.records import Record
from hlomem.report.data.lines import bare_op_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hlomem.report.data.buffers import Buffer
    from hlomem.report.data.occupancy import OwnedBytes

Tree: TypeAlias = Literal["arg", "scope"]
DEFAULT_DEPTH = 2
NO_ARGUMENT = "(not an argument)"
ARGUMENTS = "(arguments)"
UNNAMED = "(no name)"

_PIECE = re.compile(r"[.]?\w+(?:\[\d+\])*|\[[^\]]*\](?:\[\d+\])*|.")
"""A piece of an argument's path; an index stays with what it indexes."""
_NUMBER = re.compile(r"\d+(?=\W*$)")


class Branch(Record, frozen=True, kw_only=True):
    """A piece of a path, with everything below it."""

    key: str
    size: int
    count: int
    merged: int
    """The number of siblings merged into it, 1 if none."""
    children: tuple[Branch, ...] = ()
    """Largest first; with the buffers that end here they add up to `size`."""


def build_branches(
    owned: Sequence[OwnedBytes], by: Tree, depth: int = DEFAULT_DEPTH
) -> tuple[Branch, ...]:
    path_of: Callable[[Buffer], tuple[str, ...]] = _argument if by == "arg" else _scope
    entries = [(path_of(part.buffer), part.size) for part in owned]
    return _grow(entries, 0, depth)


def _argument(buffer: Buffer) -> tuple[str, ...]:
    return tuple(_PIECE.findall(buffer.parameter)) if buffer.parameter else (NO_ARGUMENT,)


def _scope(buffer: Buffer) -> tuple[str, ...]:
    """The scopes of an operation, without the jitted function that all share."""
    operation = bare_op_name(buffer.op_name or "")
    names = operation.split("/")[:-1]
    if names and names[0].startswith("jit("):
        names = names[1:] or names[:1]
    return tuple(names) or (ARGUMENTS if buffer.parameter else UNNAMED,)


_Entry: TypeAlias = tuple[tuple[str, ...], int]


def _grow(entries: Sequence[_Entry], level: int, depth: int) -> tuple[Branch, ...]:
    if level == depth:
        return ()
    found: dict[str, list[_Entry]] = {}
    for path, size in entries:
        if len(path) > level:
            found.setdefault(path[level], []).append((path, size))
    branches = [
        Branch(
            key=key,
            size=sum(size for name in names for _, size in found[name]),
            count=sum(len(found[name]) for name in names),
            merged=len(names),
            children=_grow([entry for name in names for entry in found[name]], level + 1, depth),
        )
        for key, names in _siblings(found).items()
    ]
    return tuple(sorted(branches, key=lambda branch: (-branch.size, branch.key)))


def _siblings(names: dict[str, list[_Entry]]) -> dict[str, list[str]]:
    """Names by the key shown for them: names that differ in their last number share one."""
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(_NUMBER.sub("*", name), []).append(name)
    return {
        (family if len(members) > 1 else members[0]): members
        for family, members in families.items()
    }
