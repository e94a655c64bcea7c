"""Which settings fit, by few compiles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.kernels.blocks import Block, KernelFacts
from hlomem.kernels.search import MAX_COMPILES, BlockSearch, Limited

LIMIT = 1 << 20


def _kernel(rows: int, columns: int) -> KernelFacts:
    shapes = ((rows, 128), (8, columns))
    blocks = tuple(
        Block(role="in", name="x", dtype="float32", bits=32, shape=shape, copies=2)
        for shape in shapes
    )
    return KernelFacts(name="k", line="", grid=(4,), blocks=blocks)


GRID = [(8 * 2**i, 128 * 2**j) for i in range(9) for j in range(8)]


def _search(ratio: float, *, is_largest: bool) -> tuple[BlockSearch, dict[int, bool]]:
    settings = [[Limited(_kernel(*one), LIMIT)] for one in GRID]
    search = BlockSearch(settings, [{"rows": one, "columns": two} for one, two in GRID])
    truth = {n: int(kernels[0].facts.bound * ratio) <= LIMIT for n, kernels in enumerate(settings)}
    while (number := search.next_setting(is_largest=is_largest)) is not None:
        search.note(number, [int(settings[number][0].facts.bound * ratio)])
    return search, truth


@given(st.floats(1.0, 4.0))
def test_every_setting_is_decided_right(ratio: float) -> None:
    search, truth = _search(ratio, is_largest=False)
    assert {number: one.fits for number, one in search.decisions.items()} == truth
    assert len(search.compiled) <= len(GRID) // 2


@given(st.floats(1.0, 4.0))
def test_the_largest_is_found_in_few_compiles(ratio: float) -> None:
    search, truth = _search(ratio, is_largest=True)
    assert len(search.compiled) <= MAX_COMPILES
    best = max(
        (number for number, fits in truth.items() if fits),
        key=lambda number: (_kernel(*GRID[number]).bound, number),
    )
    assert search.largest is not None
    if search.is_proven:
        assert _kernel(*GRID[search.largest]).bound == _kernel(*GRID[best]).bound


def test_what_cannot_fit_is_not_compiled() -> None:
    search = BlockSearch([[Limited(_kernel(4096, 128), LIMIT)]], [{}])
    assert search.next_setting(is_largest=False) is None
    assert search.decisions[0].how == "lower bound"
    assert search.largest is None
    assert search.is_proven


def test_a_setting_that_cannot_be_compiled_decides_nothing() -> None:
    kernels = [[Limited(_kernel(8, 128), LIMIT)], [Limited(_kernel(16, 128), LIMIT)]]
    search = BlockSearch(kernels, [{"block": 8}, {"block": 16}])
    search.fail(1)
    assert search.next_setting(is_largest=False) == 0
    assert search.note(0, [5])
    assert search.next_setting(is_largest=False) is None
    assert 1 not in search.decisions


def test_more_than_the_chip_has_does_not_fit() -> None:
    search = BlockSearch([[Limited(_kernel(8, 128), LIMIT)]], [{}])
    assert not search.note(0, [None])


def test_a_setting_that_changes_more_than_blocks_is_compiled() -> None:
    kernels = [[Limited(_kernel(8, 128), LIMIT)]] * 3
    search = BlockSearch(kernels, [{"stages": 1}, {"stages": 4}, {"stages": "x"}])
    assert search.note(0, [5])
    assert set(search.decisions) == {0}
    search = BlockSearch(kernels, [{"stages": 1}, {"stages": 4}, {"stages": "x"}])
    assert search.note(1, [5])
    assert set(search.decisions) == {0, 1}


def test_blocks_that_need_not_be_in_a_memory_decide_nothing() -> None:
    search = BlockSearch([[Limited(_kernel(4096, 128), LIMIT, has_bound=False)]], [{}])
    assert search.next_setting(is_largest=False) == 0
