"""Greedy methods: skyline and best fit, with offsets in units.

Skyline places the buffer with the lowest possible offset on top of all placed ones, wasting the
space below. Best fit places buffers in a fixed order, each into the smallest sufficient gap.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.packer.instance import Instance

    Key = Callable[[int], int]


def skyline_keys(instance: Instance) -> dict[str, Key]:
    """Orders among buffers with equal offsets."""
    size, width, ranges = instance.size, instance.width, instance.ranges
    return {
        "area": lambda b: -size[b] * width(b),
        "size": lambda b: -size[b],
        "width": lambda b: -width(b),
        "start": lambda b: ranges[b][0][0],
        "end": lambda b: -ranges[b][-1][1],
    }


def best_fit_keys(instance: Instance) -> dict[str, Key]:
    keys = skyline_keys(instance)
    return {name: keys[name] for name in ("size", "area", "width", "start")}


def place_by_skyline(instance: Instance, key: Key) -> list[int]:
    """The lowest possible buffer first; of several, the smallest by `key`."""
    size, alignment, ranges = instance.size, instance.alignment, instance.ranges
    offsets = [0] * instance.count
    floors = [0] * instance.section_count
    # Entries may be outdated, since floors rise.
    waiting = [(0, key(b), b) for b in range(instance.count)]
    heapify(waiting)
    while waiting:
        believed, rank, b = waiting[0]
        offset = max(max(floors[first:end]) for first, end in ranges[b])
        offset = -(-offset // alignment[b]) * alignment[b]
        if offset > believed:
            heapreplace(waiting, (offset, rank, b))
            continue
        heappop(waiting)
        offsets[b] = offset
        for first, end in ranges[b]:
            floors[first:end] = [offset + size[b]] * (end - first)
    return offsets


def place_by_best_fit(instance: Instance, key: Key) -> list[int]:
    """In the order of `key`, each into the smallest sufficient gap, the lowest of equal ones."""
    size, neighbours = instance.size, instance.neighbours
    offsets = [-1] * instance.count
    for b in sorted(range(instance.count), key=lambda b: (key(b), b)):
        taken = sorted((offsets[d], offsets[d] + size[d]) for d in neighbours[b] if offsets[d] >= 0)
        fitting = [
            (room, begin)
            for begin, room in _gaps(taken, instance.alignment[b])
            if room is None or room >= size[b]
        ]
        bounded = [(room, begin) for room, begin in fitting if room is not None]
        offsets[b] = min(bounded)[1] if bounded else fitting[-1][1]
    return offsets


def _gaps(taken: list[tuple[int, int]], alignment: int) -> Iterator[tuple[int, int | None]]:
    """The possible offsets of a buffer, each with its room; the last gap is unbounded."""
    top = 0
    for begin, end in taken:
        first = -(-top // alignment) * alignment
        if begin > first:
            yield first, begin - first
        top = max(top, end)
    yield -(-top // alignment) * alignment, None
