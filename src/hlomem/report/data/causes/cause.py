"""The records of this package: `Finding`, a difference of the programs; `Cause`, with bytes."""

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
    "carry",
    "length",
    "layers",
    "arguments",
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
    """A change of the program, or a line where bytes differ, and the bytes it accounts for."""

    kind: CauseKind
    text: str
    delta: int
    direct: int
    """The part of `delta` in buffers that show the change themselves; the rest follows from it."""
    count: int
    """Buffers that show it."""
    source: str | None = None
    """`file:line` of the code it is about."""
    is_certain: bool = True
    """False where the programs suggest it but do not show it."""


class Finding(Struct, frozen=True, kw_only=True):
    """A difference between two programs, before its bytes are known."""

    kind: CauseKind
    text: str
    claims: Callable[[Entry], bool] = lambda _: False
    """The entries that show this change themselves."""
    source: str | None = None
    is_certain: bool = True
    takes_rest: bool = True
    """Whether the remaining bytes follow from it, if it is the only change."""
    explains_anything: bool = False
    """Whether they follow from it next to other changes, too."""
    shows_count: bool = False
    """Whether the text gets the number of buffers that show it."""
    adds_operations: bool = False
    """Whether operations found in only one program may follow from it."""
