"""Causes of a difference, and what finds them.

In: nothing. Out: the records the other modules of this package speak in. A `Finding` is what a
comparison of the programs shows; a `Cause` is a finding, or a line of the program, with its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from hlomem.dump.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.report.data.causes.ledger import Entry

CauseKind: TypeAlias = Literal[
    "donation",
    "recomputation",
    "offload",
    "sharding",
    "loop",
    "layers",
    "batch",
    "sequence",
    "width",
    "dimension",
    "dtype",
    "layout",
    "fusion",
    "version",
    "backend",
    "results' memory",
    "line",
    "holes",
]


class Cause(Record, frozen=True, kw_only=True):
    """Something that was changed, or a line where bytes differ, and the bytes it accounts for."""

    kind: CauseKind
    text: str
    delta: int
    """Bytes more through it."""
    direct: int
    """Bytes of `delta` that stand in buffers which show the change themselves; the others follow:
    what fills the memory at another moment, or is placed differently."""
    count: int
    """How many buffers show it."""
    source: str | None = None
    """`file:line` of the code it is about."""
    is_certain: bool = True
    """False where the programs suggest it but do not show it."""


class Finding(Struct, frozen=True, kw_only=True):
    """A difference between two programs, before it is known how many bytes it makes."""

    kind: CauseKind
    text: str
    claims: Callable[[Entry], bool]
    """A test of entries: those that show this change themselves."""
    source: str | None = None
    is_certain: bool = True
    takes_rest: bool = True
    """Whether what no buffer shows follows from it, where nothing else was changed."""
    shows_count: bool = False
    """Whether it is worth saying how many buffers show it."""
    adds_operations: bool = False
    """Whether operations that only one of the programs has may follow from it."""


def never(_entry: Entry) -> bool:
    """The claim of a finding that no single buffer shows."""
    return False
