"""Numbered buffers of positive size, in units, with time divided into sections.

The unit is the greatest common divisor of sizes and alignments. Sections are the maximal sets of
buffers that are live together: two buffers overlap in time exactly if they share a section.

If all alignments have a common divisor, every buffer but the topmost takes a multiple of it: sizes
are rounded up, and the added `padding` may protrude from the heap once.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from heapq import heappop, heappush
from math import gcd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.packer.buffers import Buffer


class Instance:
    """The facts about a problem that do not depend on capacity or method."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.buffers = buffers
        self.count = len(buffers)
        whole = gcd(*(buffer.alignment for buffer in buffers)) or 1
        rounded = [-(-buffer.size // whole) * whole for buffer in buffers]
        self.unit = _unit(rounded, {buffer.alignment for buffer in buffers})
        self.size = [size // self.unit for size in rounded]
        self.padding = [size - b.size for size, b in zip(rounded, buffers, strict=True)]
        self.alignment = [max(1, buffer.alignment // self.unit) for buffer in buffers]
        self.is_aligned = max(self.alignment, default=1) > 1
        self._moments = _moments(buffers)
        self.section_count = len(self._moments)
        moments = self._moments
        self.ranges = [
            [(bisect_left(moments, begin), bisect_left(moments, end)) for begin, end in b.lives]
            for b in buffers
        ]

    @cached_property
    def lower_bound(self) -> int:
        """A lower bound of any heap: the most live bytes at one time."""
        lives = sorted(
            (first, end, b) for b, ranges in enumerate(self.ranges) for first, end in ranges
        )
        ends: list[tuple[int, int]] = []  # a heap of ends, with buffers
        paddings: list[tuple[int, int]] = []  # a heap of paddings, the largest first, with ends
        load = bound = 0
        for first, end, b in lives:
            while ends and ends[0][0] <= first:
                load -= self.size[heappop(ends)[1]]
            while paddings and paddings[0][1] <= first:
                heappop(paddings)
            load += self.size[b]
            heappush(ends, (end, b))
            heappush(paddings, (-self.padding[b], end))
            bound = max(bound, load * self.unit + paddings[0][0])
        return bound

    @cached_property
    def meetings(self) -> int:
        """The number of lives that begin during others, about the number of overlapping pairs."""
        ends: list[int] = []
        met = 0
        for first, end in sorted(life for ranges in self.ranges for life in ranges):
            while ends and ends[0] <= first:
                heappop(ends)
            met += len(ends)
            heappush(ends, end)
        return met

    @cached_property
    def sections(self) -> list[list[int]]:
        sections: list[list[int]] = [[] for _ in range(self.section_count)]
        for b, ranges in enumerate(self.ranges):
            for first, end in ranges:
                for section in sections[first:end]:
                    section.append(b)
        return sections

    @cached_property
    def loads(self) -> list[int]:
        """The total size in each section."""
        return [sum(self.size[b] for b in section) for section in self.sections]

    @cached_property
    def masks(self) -> list[int]:
        """The sections of each buffer, as bits."""
        return [sum((1 << end) - (1 << first) for first, end in ranges) for ranges in self.ranges]

    @cached_property
    def neighbours(self) -> list[list[int]]:
        """The buffers that share a section with each, in order."""
        found: list[set[int]] = [set() for _ in range(self.count)]
        before: set[int] = set()
        for section in self.sections:
            new = [b for b in section if b not in before]
            before = set(section)
            for b in new:
                found[b] |= before
                for other in section:
                    found[other].add(b)
        return [sorted(others - {b}) for b, others in enumerate(found)]

    def next_height(self, height: int) -> int:
        unit = self.unit
        return min(b.size + ((height - b.size) // unit + 1) * unit for b in self.buffers)

    def duration(self, b: int) -> int:
        """The total time in which a buffer is live."""
        return sum(upper - lower for lower, upper in self.buffers[b].lives)

    def width(self, b: int) -> int:
        """The number of a buffer's sections."""
        return sum(end - first for first, end in self.ranges[b])


def _unit(sizes: Sequence[int], alignments: set[int]) -> int:
    """The largest divisor of all sizes that divides each alignment, or is a multiple of it."""
    unit = gcd(*sizes) or 1
    while wrong := [alignment for alignment in alignments if unit % alignment]:
        smaller = gcd(unit, *wrong)
        if smaller == unit:
            break
        unit = smaller
    return unit


def _moments(buffers: Sequence[Buffer]) -> list[int]:
    begins, ends = set[int](), set[int]()
    for buffer in buffers:
        for lower, upper in buffer.lives:
            begins.add(lower)
            ends.add(upper)
    moments: list[int] = []
    newest: int | None = None  # the last begin without an end since
    for time in sorted(begins | ends):
        # A set between a begin and an end is maximal.
        if time in ends and newest is not None:
            moments.append(newest)
            newest = None
        if time in begins:
            newest = time
    return moments
