"""The bytes that an order keeps alive, counted without packing them.

A buffer counts while one of its values is alive; what is written over an operand takes its bytes;
what a node calls counts while it runs. Memory borrowed from results is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.opt.orders.flow import Flow


class Peak(NamedTuple):
    """The step at which most is alive."""

    size: int
    place: int
    """The place in the order, the first of equals."""


def peak_of(flow: Flow, order: Sequence[int]) -> Peak:
    """The most bytes an order keeps alive at once."""
    levels = levels_of(flow, order)
    size = max(levels, default=0)
    return Peak(size, levels.index(size) if levels else 0)


def levels_of(flow: Flow, order: Sequence[int]) -> list[int]:
    """The bytes alive while each node of an order runs."""
    sizes, values, made_by, read_by = flow.sizes, flow.values, flow.made_by, flow.read_by
    shares, inner = flow.shares, flow.inner
    buffer_of = [value.buffer for value in values]
    unread = [len(value.readers) + value.lives_on for value in values]
    alive = [0] * len(sizes)
    level = 0
    for value in flow.at_start:
        buffer = buffer_of[value]
        if not alive[buffer]:
            level += sizes[buffer]
        alive[buffer] += 1
    levels: list[int] = []
    for node in order:
        saved = 0
        if node in shares:
            saved = shared_bytes(flow, node, unread)
        made = made_by[node]
        for value in made:
            buffer = buffer_of[value]
            if not alive[buffer]:
                level += sizes[buffer]
            alive[buffer] += 1
        here = level - saved
        if node in inner:
            counted = flow.counted_inside[node]
            here += inner[node] - sum(sizes[buffer] for buffer in counted if alive[buffer])
        levels.append(here)
        for value in read_by[node]:
            unread[value] -= 1
            if not unread[value]:
                buffer = buffer_of[value]
                alive[buffer] -= 1
                if not alive[buffer]:
                    level -= sizes[buffer]
        for value in made:
            if not unread[value]:
                buffer = buffer_of[value]
                alive[buffer] -= 1
                if not alive[buffer]:
                    level -= sizes[buffer]
    return levels


def shared_bytes(flow: Flow, node: int, unread: Sequence[int]) -> int:
    """Bytes of what a node reads last that its results are written over."""
    taken: set[int] = set()
    saved = 0
    for value, candidates in flow.shares[node]:
        for candidate in candidates:
            if unread[candidate] == 1 and candidate not in taken:
                taken.add(candidate)
                own, other = flow.values[value].buffer, flow.values[candidate].buffer
                saved += min(flow.sizes[own], flow.sizes[other])
                break
    return saved
