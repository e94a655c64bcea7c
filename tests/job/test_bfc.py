"""The twin of the allocator: no byte is given away twice, and none is lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.job.bfc import GRAIN, BfcAllocator, PoolExhaustedError, rounded

MIB = 1 << 20
KINDS = [
    pytest.param(True, False, id="grows"),
    pytest.param(False, True, id="partitioned"),
    pytest.param(False, False, id="one region"),
]
calls = st.lists(
    st.tuples(st.booleans(), st.integers(1, 40 * MIB)),
    max_size=60,
)


def _play(twin: BfcAllocator, asked: list[tuple[bool, int]]) -> dict[int, int]:
    held: dict[int, int] = {}
    for is_free, size in asked:
        if is_free and held:
            address = sorted(held)[size % len(held)]
            twin.free(address)
            del held[address]
            continue
        try:
            given_to = twin.allocate(size)
        except PoolExhaustedError:
            continue
        assert given_to is not None
        held[given_to] = size
    return held


@pytest.mark.parametrize(("grows", "is_partitioned"), KINDS)
@given(asked=calls)
def test_chunks_lie_apart_and_in_their_regions(
    grows: bool, is_partitioned: bool, asked: list[tuple[bool, int]]
) -> None:
    twin = BfcAllocator(256 * MIB, grows=grows, is_partitioned=is_partitioned)
    held = _play(twin, asked)
    chunks = [twin.chunk_at(address) for address in sorted(held)]
    assert sum(chunk.size for chunk in chunks) == twin.in_use <= twin.peak
    for chunk in chunks:
        assert rounded(held[chunk.start]) <= chunk.size
        ends = [one.start + one.size for one in twin.regions if one.start <= chunk.start]
        assert chunk.start + chunk.size <= ends[-1]
    for before, after in pairwise(chunks):
        assert before.start + before.size <= after.start
    assert sum(region.size for region in twin.regions) == twin.pool <= twin.limit


@pytest.mark.parametrize(("grows", "is_partitioned"), KINDS)
@given(asked=calls)
def test_what_is_given_back_becomes_whole_regions_again(
    grows: bool, is_partitioned: bool, asked: list[tuple[bool, int]]
) -> None:
    twin = BfcAllocator(256 * MIB, grows=grows, is_partitioned=is_partitioned)
    for address in _play(twin, asked):
        twin.free(address)
    assert twin.in_use == 0
    assert twin.largest_free == max([region.size for region in twin.regions], default=0)


def test_a_pool_that_grows_doubles_its_regions() -> None:
    twin = BfcAllocator(1 << 40)
    for _ in range(3):
        twin.allocate(2 * MIB)
    twin.allocate(70 * MIB)
    assert [region.size // MIB for region in twin.regions] == [2, 4, 128]


def test_regions_that_are_too_small_fail_with_nothing_in_use() -> None:
    limit = 105 << 30
    twin = BfcAllocator(limit)
    twin.free(twin.allocate(int(32.7 * 2**30)))
    assert twin.in_use == 0
    with pytest.raises(PoolExhaustedError):
        twin.allocate(70 << 30)
    other = BfcAllocator(limit)
    other.free(other.allocate(70 << 30))
    other.allocate(int(32.7 * 2**30))


def test_a_chunk_is_not_split_for_little() -> None:
    twin = BfcAllocator(1 << 40, grows=False, is_partitioned=False)
    first = twin.allocate(300 * MIB)
    twin.allocate(GRAIN)
    twin.free(first)
    again = twin.allocate(200 * MIB)
    assert again == first
    assert twin.chunk_at(first or 0).size == 300 * MIB  # 100 MiB would be left


def test_no_bytes_take_no_chunk() -> None:
    twin = BfcAllocator(MIB)
    assert twin.allocate(0) is None
    twin.free(None)
    assert twin.pool == 0
