"""Buffers to place and what becomes of them.

In: anything with `id`, `lower`, `upper`, `size`. Out: the same in one order, whatever order they
came in, so that every method gives one answer for one set of buffers.
"""

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
    """Bytes that are needed from `lower` until before `upper`."""

    id: int | str
    lower: int
    upper: int
    size: int
    alignment: int = 1
    """The offset is a multiple of it."""
    more_lives: tuple[tuple[int, int], ...] = ()
    """Further times, half-open as well, at which the same bytes are in use."""

    @property
    def lives(self) -> list[tuple[int, int]]:
        """All times at which the bytes are in use, in order; those that touch made one."""
        joined: list[tuple[int, int]] = []
        for lower, upper in sorted(((self.lower, self.upper), *self.more_lives)):
            if joined and lower <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(joined[-1][1], upper)
            else:
                joined.append((lower, upper))
        return joined


class Packing(Struct, frozen=True):
    """A place for every buffer, and how good it is known to be."""

    status: Status
    """Without a capacity: "at the bound" (as high as the bytes alive at one time), "proven
    optimal" (an exhaustive search found nothing lower) or "unknown within effort" (it may go
    lower). With one: "fits", "proven not to fit" or "unknown within effort"; the offsets are then
    those of the lowest packing that was found."""
    height: int
    """Bytes of the heap."""
    lower_bound: int
    """Bytes that no packing can do without, as far as is known."""
    offset_of: Mapping[int | str, int]
    method: str
    """What found it."""
    steps: int
    """Decisions of the exact search, of which `effort` is the most."""


def in_order(buffers: Iterable[Buffer]) -> list[Buffer]:
    """The buffers by id, numbers before names; refuses what cannot be placed."""
    ordered = sorted(buffers, key=lambda buffer: (isinstance(buffer.id, str), buffer.id))
    for buffer in ordered:
        if problem := problem_of(buffer):
            raise CommandError(f"buffer `{visible(str(buffer.id))}`: {problem}")
    for buffer, other in pairwise(ordered):
        if buffer.id == other.id:
            raise CommandError(f"two buffers have the id `{visible(str(buffer.id))}`")
    return ordered


def problem_of(buffer: Buffer) -> str:
    """What is wrong with a buffer; nothing if it can be placed."""
    for lower, upper in ((buffer.lower, buffer.upper), *buffer.more_lives):
        if lower >= upper:
            return f"lives from {lower} to before {upper}, which is never"
    if buffer.size < 0:
        return f"its size is {buffer.size}, below 0"
    if buffer.alignment < 1:
        return f"its alignment is {buffer.alignment}, below 1"
    return ""


def height_of(buffers: Iterable[Buffer], offset_of: Mapping[int | str, int]) -> int:
    """Where the topmost buffer ends."""
    return max((offset_of[buffer.id] + buffer.size for buffer in buffers), default=0)
