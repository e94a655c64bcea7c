"""An independent check of packings: as each buffer begins, all live ones are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.packer.buffers import Buffer


def find_problems(
    buffers: Sequence[Buffer], offset_of: Mapping[int | str, int], height: int
) -> list[str]:
    """Buffers without an offset, misaligned ones, those above `height`, and overlapping pairs."""
    problems = [found for buffer in buffers if (found := _problem_of(buffer, offset_of, height))]
    strangers = set(offset_of) - {buffer.id for buffer in buffers}
    problems += [f"{one} has an offset, but is not a buffer" for one in sorted(map(str, strangers))]
    placed = [buffer for buffer in buffers if buffer.id in offset_of and buffer.size > 0]
    return problems + list(dict.fromkeys(_collisions(placed, offset_of)))


def _problem_of(buffer: Buffer, offset_of: Mapping[int | str, int], height: int) -> str:
    if buffer.id not in offset_of:
        return f"{buffer.id} has no offset"
    offset = offset_of[buffer.id]
    if offset < 0:
        return f"{buffer.id} is at {offset}, below 0"
    if offset % buffer.alignment:
        return f"{buffer.id} is at {offset}, not a multiple of {buffer.alignment}"
    if offset + buffer.size > height:
        return f"{buffer.id} ends at {offset + buffer.size}, above {height}"
    return ""


def _collisions(placed: Sequence[Buffer], offset_of: Mapping[int | str, int]) -> list[str]:
    """Pairs that share bytes when the later of the two begins."""
    lives = [
        (*life, buffer)
        for buffer in placed
        for life in ((buffer.lower, buffer.upper), *buffer.more_lives)
    ]
    lives.sort(key=lambda entry: entry[:2])
    problems = []
    alive: list[tuple[int, Buffer]] = []
    for index, (now, upper, buffer) in enumerate(lives):
        alive = [(end, other) for end, other in alive if end > now]
        alive.append((upper, buffer))
        if index + 1 < len(lives) and lives[index + 1][0] == now:
            continue
        by_address = sorted((other for _, other in alive), key=lambda b: offset_of[b.id])
        highest = None
        for above in by_address:
            if highest is not None and highest.id != above.id:
                end = offset_of[highest.id] + highest.size
                if end > offset_of[above.id]:
                    problems.append(f"{highest.id} and {above.id} share bytes at time {now}")
            if highest is None or (
                offset_of[above.id] + above.size > offset_of[highest.id] + highest.size
            ):
                highest = above
    return problems
