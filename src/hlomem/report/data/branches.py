"""Buffers as a tree: by the paths of arguments, or by the scopes of operations.

In: who holds bytes at a step. Out: branches with subtotals, largest first, which add up at every
level. Siblings that differ by a number alone are one branch: `block_0`, `block_1` are `block_*`.

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
"""Of an argument's path; a number in brackets stays with what it counts."""
_NUMBER = re.compile(r"\d+(?=\W*$)")


class Branch(Record, frozen=True, kw_only=True):
    """A part of a path, and all that is below it."""

    key: str
    size: int
    count: int
    """How many buffers."""
    merged: int
    """How many siblings that differ by a number alone are in it; 1 for a branch of its own."""
    children: tuple[Branch, ...] = ()
    """Largest first; with what ends here they add up to `size`."""


def build_branches(
    owned: Sequence[OwnedBytes], by: Tree, depth: int = DEFAULT_DEPTH
) -> tuple[Branch, ...]:
    """The tree of who holds bytes, to a depth."""
    path_of: Callable[[Buffer], tuple[str, ...]] = _argument if by == "arg" else _scope
    entries = [(path_of(part.buffer), part.size) for part in owned]
    return _grow(entries, 0, depth)


def _argument(buffer: Buffer) -> tuple[str, ...]:
    return tuple(_PIECE.findall(buffer.parameter)) if buffer.parameter else (NO_ARGUMENT,)


def _scope(buffer: Buffer) -> tuple[str, ...]:
    """The scopes around an operation; the jitted function, which all share, is left out."""
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
    """Names by what is shown for them: those that differ by their last number are one."""
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(_NUMBER.sub("*", name), []).append(name)
    return {
        (family if len(members) > 1 else members[0]): members
        for family, members in families.items()
    }
