"""The owners of an allocation's bytes at one moment.

In: the buffers alive in it. Out: each with the bytes that are its own, where several share some,
and the byte ranges taken in all. A range does not include its last byte.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from hlomem.base.named_tuples import NamedTuple
from hlomem.hlo.opcodes import MERGING
from hlomem.hlo.padding import round_up
from hlomem.report.data import roles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hlomem.report.data.buffers import Buffer

ByteRange: TypeAlias = tuple[int, int]


class OwnedBytes(NamedTuple):
    """A buffer and how many bytes at a moment are its own, not another's that shares them."""

    buffer: Buffer
    size: int


def share_out(alive: Iterable[Buffer]) -> tuple[list[OwnedBytes], list[ByteRange]]:
    """The owner of every byte, each byte counted once, and the ranges taken, in order and apart."""
    buffers = list(alive)
    if len(buffers) < 2:  # most often; nobody shares anything
        ranges: list[ByteRange] = [
            (buffer.offset, buffer.offset + buffer.size) for buffer in buffers if buffer.size > 0
        ]
        return [OwnedBytes(buffer, buffer.size) for buffer in buffers], ranges
    taken: list[ByteRange] = []
    owned = [
        OwnedBytes(buffer, _claim_bytes(taken, buffer.offset, buffer.offset + buffer.size))
        for buffer in sorted(buffers, key=ownership_key)
    ]
    return [part for part in owned if part.size or not part.buffer.size], taken


def alignment_gaps(taken: Sequence[ByteRange], size: int, alignment: int) -> Iterator[int]:
    """Bytes from the end of each taken range to the next offset a buffer may have."""
    for (_, end), (limit, _) in pairwise([*taken, (size, size)]):
        yield max(0, min(round_up(end, alignment), limit) - end)


def ownership_key(buffer: Buffer) -> tuple[int, bool, bool, int]:
    """Of buffers that share bytes the first of this order is said to hold them."""
    is_argument = buffer.opcode == "parameter" and buffer.parameter is not None
    is_handed_on = buffer.opcode in MERGING and not is_argument
    return (roles.rank(buffer.role), buffer.op_name is None, is_handed_on, buffer.id)


def _claim_bytes(taken: list[ByteRange], start: int, end: int) -> int:
    """Adds [start, end) to sorted, disjoint ranges, and says how many bytes of it are new."""
    low = bisect_left(taken, start, key=lambda taken_range: taken_range[1])
    high = low
    covered = 0
    first, last = start, end
    while high < len(taken) and taken[high][0] <= end:
        covered += max(0, min(end, taken[high][1]) - max(start, taken[high][0]))
        first, last = min(first, taken[high][0]), max(last, taken[high][1])
        high += 1
    if end > start:
        taken[low:high] = [(first, last)]
    return end - start - covered
