"""Packs buffers into the smallest heap found, never larger than XLA's, with a proof if possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.assign.packing import BufferInterval, pack_best
from hlomem.packer.buffers import Buffer, Packing
from hlomem.packer.solve import DEFAULT_EFFORT, solve

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["DEFAULT_EFFORT", "Buffer", "Packing", "pack", "pack_as_xla"]

_MAX_FLOAT = 1 << 53
"""The limit of exact floats, which our replica of XLA's heap uses as addresses."""


def pack(
    buffers: Iterable[Buffer],
    *,
    capacity: int | None = None,
    effort: int = DEFAULT_EFFORT,
    second_opinion: bool = False,
) -> Packing:
    """Offsets for buffers with lifetimes.

    With a `capacity`, the answer is whether they fit; else the smallest heap found within `effort`,
    counted in steps for reproducibility. `second_opinion` uses OR-tools' CP-SAT if the question
    stays open.
    """
    buffers = list(buffers)
    alignments = {buffer.alignment for buffer in buffers}
    is_countable = sum(buffer.size + buffer.alignment for buffer in buffers) < _MAX_FLOAT
    heaps = {"XLA's heap": pack_as_xla} if len(alignments) == 1 and is_countable else {}
    return solve(
        buffers, capacity=capacity, effort=effort, second_opinion=second_opinion, heaps=heaps
    )


def pack_as_xla(buffers: Sequence[Buffer]) -> dict[int | str, int]:
    """Offsets by the better of XLA's two heaps, for buffers of one alignment."""
    intervals = [
        BufferInterval(
            number,
            buffer.size,
            buffer.lower,
            buffer.upper - 1,
            [(lower, upper - 1) for lower, upper in buffer.more_lives],
        )
        for number, buffer in enumerate(buffers)
    ]
    if not intervals:
        return {}
    packing = pack_best(intervals, buffers[0].alignment)
    return {buffer.id: packing.offset_by_id[number] for number, buffer in enumerate(buffers)}
