"""The bytes that a change of sizes or lifetimes saves, from the plan alone.

In: a memory space, and for some buffers the share of their bytes that is left, or the steps at
which they are still needed. Out: bytes by which the most that is alive at a step falls. Nothing is
packed again, and the program is otherwise as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.base.quantities import ValueId
    from hlomem.report.data.memory import MemoryView, Space

Steps: TypeAlias = "tuple[tuple[int, int], ...]"
"""Ranges of steps, both ends included."""
_MAX_STEPS = 400


def promise(
    memory: MemoryView,
    space: Space,
    share: Mapping[ValueId, float],
    alive: Mapping[ValueId, Steps] | None = None,
) -> int:
    """Bytes saved, by the ids of buffers whose share is left, and of those that live shorter."""
    timeline = memory.timeline(space.color)
    if timeline is None:
        return sum(
            int(buffer.size * (1 - share[buffer.id]))
            for buffer in memory.buffers
            if buffer.id in share and buffer.color == space.color
        )
    lives = alive or {}
    peak = timeline.peak.size
    after = max(_size_at(memory, space, step, share, lives) for step in _steps(timeline.sizes))
    return max(0, peak - after)


def _steps(sizes: Sequence[int]) -> list[int]:
    """The fullest steps, which may be the fullest afterwards."""
    order = sorted(range(len(sizes)), key=lambda step: -sizes[step])
    fullest, rest = order[: _MAX_STEPS // 2], order[_MAX_STEPS // 2 :]
    return fullest + rest[:: max(1, len(rest) // (_MAX_STEPS // 2))]


def _size_at(
    memory: MemoryView,
    space: Space,
    step: int,
    share: Mapping[ValueId, float],
    lives: Mapping[ValueId, Steps],
) -> int:
    total = 0.0
    for buffer, size in memory.alive(space.color, step):
        if buffer.id in lives and not any(a <= step <= b for a, b in lives[buffer.id]):
            continue
        total += size * share.get(buffer.id, 1.0)
    return int(total)
