"""The search for the largest size that fits: it ends at two neighbours, and soon."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlomem.api.fit_search import MAX_PLANS, Planned, next_value, straddle

LIMIT = 1_000_000


def _run(
    sizes: dict[int, int], slope: int, base: int, step: int, most: int = 1000
) -> dict[int, Planned]:
    """Plans asked for until nothing is left; `sizes` are exceptions from a line."""
    seen: dict[int, Planned] = {}
    while (value := next_value(seen, LIMIT, step)) is not None and len(seen) < most:
        assert value not in seen
        assert value > 0
        assert value % step == 0
        size = sizes.get(value, base + slope * value)
        seen[value] = Planned(size, size <= LIMIT)
    return seen


@given(
    slope=st.integers(100, 2 * LIMIT),
    base=st.integers(0, LIMIT // 2),
    step=st.sampled_from([1, 4, 128]),
)
def test_what_grows_in_a_line_is_proven_soon(slope: int, base: int, step: int) -> None:
    seen = _run({}, slope, base, step)
    true = max(0, (LIMIT - base) // slope // step * step)
    assert straddle(seen).largest == true
    assert straddle(seen).is_closed(step)
    assert len(seen) <= MAX_PLANS


@given(
    slope=st.integers(5_000, LIMIT),
    base=st.integers(0, LIMIT // 2),
    bends=st.dictionaries(st.integers(1, 200), st.integers(0, 2 * LIMIT)),
)
def test_whatever_the_compiler_does_it_ends_at_two_neighbours(
    slope: int, base: int, bends: dict[int, int]
) -> None:
    seen = _run(bends, slope, base, 1)
    largest, refused = straddle(seen)
    assert refused == largest + 1
    assert not largest or seen[largest].fits
    assert not seen[refused].fits


def test_a_value_that_needs_less_than_a_smaller_one_misleads_nobody() -> None:
    """Sizes of qwen3-0.6b on four v5e in MiB, as libtpu plans them."""
    sizes = {2: 4076, 4: 5863, 15: 15230, 16: 14060, 18: 15598, 19: 16369, 20: 17140}
    seen: dict[int, Planned] = {}
    while (value := next_value(seen, 16128, 1)) is not None:
        size = sizes.get(value, 2290 + 766 * value)
        seen[value] = Planned(size, size <= 16128)
    assert list(seen) == [2, 4, 15, 16, 18, 19]
    assert straddle(seen) == (18, 19)


def test_the_compiler_that_tries_harder_near_the_limit_is_followed() -> None:
    """Sizes of a real train step in MiB: foretold are 62, and 69 fit."""

    def size(value: int) -> int:
        return 1700 + (231 if value < 30 else 207) * value

    seen: dict[int, Planned] = {}
    while (value := next_value(seen, 16128, 1)) is not None:
        seen[value] = Planned(size(value), size(value) <= 16128)
    assert straddle(seen) == (69, 70)
    assert len(seen) <= MAX_PLANS


def test_a_size_that_changes_nothing_does_not_go_on_for_ever() -> None:
    seen: dict[int, Planned] = {}
    for _ in range(MAX_PLANS):
        value = next_value(seen, LIMIT, 1)
        assert value is not None
        seen[value] = Planned(500, True)
    assert not straddle(seen).is_closed(1)


@given(st.integers(3, 60_000), st.sampled_from([1, 4]), st.integers(0, 70_000) | st.none())
def test_a_value_that_is_foretold_is_planned_next_and_never_believed(
    true: int, step: int, lie: int | None
) -> None:
    seen: dict[int, Planned] = {}

    def predict() -> int:
        """One that lied for ever would make it a walk."""
        return true if lie is None or len(seen) > 100 else lie

    while (value := next_value(seen, LIMIT, step, forecast=predict)) is not None:
        assert value not in seen
        fits = value <= true
        seen[value] = Planned(LIMIT // 2 + value if fits else LIMIT + value, fits)
    assert straddle(seen).largest == true // step * step
    if lie is None:
        assert len(seen) <= 5


def test_a_start_is_rounded_to_the_step() -> None:
    assert next_value({}, LIMIT, 128, start=1000) == 896
    assert next_value({}, LIMIT, 128) == 128
    assert next_value({}, LIMIT, 1) == 2
