"""Buffers to pack, and packings."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from hlomem.base.errors import CommandError
from hlomem.base.source import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Status = Literal[
    "at the bound", "proven optimal", "fits", "proven not to fit", "unknown within effort"
]


class Buffer(Struct, frozen=True):
    """Bytes that are live in [lower, upper)."""

    id: int | str
    lower: int
    upper: int
    size: int
    alignment: int = 1
    """Of the offset."""
    more_lives: tuple[tuple[int, int], ...] = ()
    """Other half-open intervals in which the bytes are live."""

    @property
    def lives(self) -> list[tuple[int, int]]:
        """The intervals in which the bytes are live, in order; adjacent ones are merged."""
        joined: list[tuple[int, int]] = []
        for lower, upper in sorted(((self.lower, self.upper), *self.more_lives)):
            if joined and lower <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(joined[-1][1], upper)
            else:
                joined.append((lower, upper))
        return joined


class Packing(Struct, frozen=True):
    status: Status
    """Without a capacity: "at the bound" (no higher than the most live bytes), "proven optimal"
    (nothing lower exists) or "unknown within effort". With one: "fits", "proven not to fit" or
    "unknown within effort"; the offsets are then those of the lowest packing found."""
    height: int
    """Bytes of the heap."""
    lower_bound: int
    """The best known lower bound of any heap."""
    offset_of: Mapping[int | str, int]
    method: str
    steps: int
    """Decisions of the exact search, at most the effort."""


def in_order(buffers: Iterable[Buffer]) -> list[Buffer]:
    """The buffers by id, numbers before names, so that results do not depend on their order."""
    ordered = sorted(buffers, key=lambda buffer: (isinstance(buffer.id, str), buffer.id))
    for buffer in ordered:
        if problem := problem_of(buffer):
            raise CommandError(f"buffer `{visible(str(buffer.id))}`: {problem}")
    for buffer, other in pairwise(ordered):
        if buffer.id == other.id:
            raise CommandError(f"two buffers have the id `{visible(str(buffer.id))}`")
    return ordered


def problem_of(buffer: Buffer) -> str:
    """Why a buffer is invalid; empty if it is valid."""
    for lower, upper in ((buffer.lower, buffer.upper), *buffer.more_lives):
        if lower >= upper:
            return f"lives from {lower} to before {upper}, which is never"
    if buffer.size < 0:
        return f"its size is {buffer.size}, below 0"
    if buffer.alignment < 1:
        return f"its alignment is {buffer.alignment}, below 1"
    return ""


def height_of(buffers: Iterable[Buffer], offset_of: Mapping[int | str, int]) -> int:
    """The end of the topmost buffer."""
    return max((offset_of[buffer.id] + buffer.size for buffer in buffers), default=0)
