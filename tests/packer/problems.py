"""Random packing problems, and the answer to small ones by trying everything."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from hlomem.packer.buffers import Buffer

GAP = [
    Buffer("a", 0, 6, 6),
    Buffer("b", 5, 6, 4),
    Buffer("c", 1, 6, 3, 4),
    Buffer("d", 2, 4, 3, 2),
    Buffer("e", 2, 3, 3, 4),
]
"""Greedy methods need 19 bytes, 17 are enough, and at no time are more than 15 alive."""
SIZES = st.integers(0, 9)


@st.composite
def lives(draw: st.DrawFn, end: int = 8) -> tuple[int, int]:
    """A half-open range of times."""
    lower = draw(st.integers(0, end - 1))
    return lower, draw(st.integers(lower + 1, end))


@st.composite
def problems(draw: st.DrawFn, most: int = 6, sizes: st.SearchStrategy[int] = SIZES) -> list[Buffer]:
    """Buffers without alignment, of one, or of many."""
    alignments = draw(
        st.sampled_from([st.just(1), st.just(1), st.just(4), st.sampled_from([1, 2, 3, 4, 6])])
    )
    count = draw(st.integers(1, most))
    ranges = draw(st.lists(lives(), min_size=count, max_size=count))
    return [
        Buffer(
            number,
            lower,
            upper,
            draw(sizes),
            draw(alignments),
            tuple(draw(st.lists(lives(), max_size=1))) if draw(st.integers(0, 5)) == 0 else (),
        )
        for number, (lower, upper) in enumerate(ranges)
    ]


def smallest_height(buffers: Sequence[Buffer]) -> int:
    """The height of the best packing: every order of putting one buffer onto the others.

    The buffers of a best packing in the order of their offsets are one of these orders.
    """
    meets = [[_meet(one, other) for other in buffers] for one in buffers]
    best = sum(buffer.size + buffer.alignment for buffer in buffers)
    offsets: dict[int, int] = {}

    def put_next(height: int) -> None:
        nonlocal best
        if height >= best:
            return
        if len(offsets) == len(buffers):
            best = height
        for number, buffer in enumerate(buffers):
            if number in offsets:
                continue
            below = [o + buffers[n].size for n, o in offsets.items() if meets[number][n]]
            offset = -(-max(below, default=0) // buffer.alignment) * buffer.alignment
            offsets[number] = offset
            put_next(max(height, offset + buffer.size))
            del offsets[number]

    put_next(0)
    return best


def _meet(one: Buffer, other: Buffer) -> bool:
    return any(
        a < d and c < b
        for a, b in ((one.lower, one.upper), *one.more_lives)
        for c, d in ((other.lower, other.upper), *other.more_lives)
    )
