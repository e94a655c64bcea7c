"""The heap against a slow, obvious one, and against its own promises."""

from __future__ import annotations

from itertools import combinations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.assign.packing import (
    BufferInterval,
    Packing,
    by_columns,
    lower_bound,
    pack,
    pack_best,
    pack_by_time,
    spatial_keys,
    temporal_keys,
)


@st.composite
def problems(draw: st.DrawFn) -> list[BufferInterval]:
    """Buffers whose times are distinct ticks of one clock, as the simulator gives them."""
    count = draw(st.integers(1, 25))
    lives = count + draw(st.integers(0, 6))
    ticks = draw(st.permutations(range(2 * lives)))
    spans = [(min(pair), max(pair)) for pair in zip(ticks[::2], ticks[1::2], strict=True)]
    extra: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for span in spans[count:]:
        extra[draw(st.integers(0, count - 1))].append(span)
    return [
        BufferInterval(
            i, draw(st.sampled_from([0, 1, 4, 63, 64, 65, 200, 4096])), *spans[i], extra[i]
        )
        for i in range(count)
    ]


def _times(buffer: BufferInterval) -> list[tuple[int, int]]:
    return [(buffer.start, buffer.end), *buffer.colocations]


def _meet(one: BufferInterval, two: BufferInterval) -> bool:
    return any(a[0] <= b[1] and b[0] <= a[1] for a in _times(one) for b in _times(two))


def _large_first(buffer: BufferInterval) -> tuple[int, int, int]:
    return -buffer.size, buffer.start - buffer.end, buffer.id


def _slow_pack(buffers: list[BufferInterval], alignment: int) -> dict[int, int]:
    """Best fit by definition: look at every gap between the buffers that are in the way."""
    offsets: dict[int, int] = {}
    placed: list[BufferInterval] = []
    for buffer in sorted(buffers, key=_large_first):
        if buffer.size == 0:
            offsets[buffer.id] = 0
            continue
        blocks = sorted(
            (offsets[other.id], -(-(offsets[other.id] + other.size) // alignment) * alignment)
            for other in placed
            if _meet(buffer, other)
        )
        gaps = []
        free_from = 0
        for begin, end in blocks:
            if begin - free_from >= buffer.size:
                gaps.append((begin - free_from, free_from))
            free_from = max(free_from, end)
        offsets[buffer.id] = min(gaps)[1] if gaps else free_from
        placed.append(buffer)
    return offsets


@given(problems(), st.sampled_from([1, 16, 64]))
def test_offsets_are_those_of_the_obvious_algorithm(
    buffers: list[BufferInterval], alignment: int
) -> None:
    packing = pack(buffers, alignment, spatial_keys)
    assert packing is not None
    assert packing.offset_by_id == _slow_pack(buffers, alignment)


@given(problems(), st.sampled_from([1, 16, 64]))
def test_a_packing_is_sound(buffers: list[BufferInterval], alignment: int) -> None:
    packing = pack_best(buffers, alignment)
    offset = packing.offset_by_id
    assert all(each % alignment == 0 for each in offset.values())
    for one, two in combinations([each for each in buffers if each.size], 2):
        if _meet(one, two):
            first, second = sorted((one, two), key=lambda each: offset[each.id])
            assert offset[first.id] + first.size <= offset[second.id]
    assert packing.heap_size == max(offset[each.id] + each.size for each in buffers)
    assert packing.heap_size >= lower_bound(buffers, alignment)


@given(problems(), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_the_order_of_the_input_does_not_matter(
    buffers: list[BufferInterval], random: object
) -> None:
    shuffled = buffers[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert pack_best(shuffled, 64) == pack_best(buffers, 64)


@given(problems())
def test_the_better_of_two_orders_is_kept(buffers: list[BufferInterval]) -> None:
    spatial = pack(buffers, 64, spatial_keys)
    temporal = pack(buffers, 64, temporal_keys)
    assert spatial is not None
    assert temporal is not None
    expected = temporal if temporal.heap_size < spatial.heap_size else spatial
    assert pack_best(buffers, 64) == expected


@given(problems())
def test_columns_are_a_sequence_of_the_buffers(buffers: list[BufferInterval]) -> None:
    columns = by_columns(buffers)
    assert [msgspec.structs.astuple(one) for one in columns[:]] == [
        (*msgspec.structs.astuple(one)[:4], one.colocations or ()) for one in buffers
    ]
    assert columns[-1].id == buffers[-1].id
    assert len(columns) == len(buffers)
    assert by_columns(columns) is columns


def test_the_example_of_the_module() -> None:
    buffers = [
        BufferInterval(0, 8, 0, 2),
        BufferInterval(1, 6, 2, 4),
        BufferInterval(2, 4, 3, 4),
        BufferInterval(3, 2, 0, 1),
    ]
    assert pack_best(buffers, 1) == Packing({0: 0, 1: 8, 2: 0, 3: 8}, 14)


def test_many_lives_in_many_blocks() -> None:
    """More slots than one leaf of the tree holds; every buffer overlaps its neighbours."""
    buffers = [BufferInterval(i, 64 + 64 * (i % 3), 2 * i, 2 * i + 200) for i in range(500)]
    packing = pack(buffers, 64, spatial_keys)
    assert packing is not None
    assert packing.offset_by_id == _slow_pack(buffers, 64)


@given(problems(), st.sampled_from([1, 16, 64]))
def test_packing_by_time_is_sound(buffers: list[BufferInterval], alignment: int) -> None:
    packing = pack_by_time(buffers, alignment)
    offset = packing.offset_by_id
    assert all(each % alignment == 0 for each in offset.values())
    for one, two in combinations([each for each in buffers if each.size], 2):
        if _meet(one, two):
            first, second = sorted((one, two), key=lambda each: offset[each.id])
            assert offset[first.id] + first.size <= offset[second.id]
    assert packing.heap_size == max(offset[each.id] + each.size for each in buffers)


def test_packing_by_time_takes_the_smallest_gap_there_is() -> None:
    lives = [(8, 0, 3), (2, 1, 9), (4, 2, 5), (2, 4, 9), (3, 6, 9)]
    buffers = [BufferInterval(i, size, start, end) for i, (size, start, end) in enumerate(lives)]
    # At 4 the first eight bytes are free, and those from 14 on; at 6 bytes 2 to 7, and from 10 on.
    assert pack_by_time(buffers, 1) == Packing({0: 0, 1: 8, 2: 10, 3: 0, 4: 2}, 14)
