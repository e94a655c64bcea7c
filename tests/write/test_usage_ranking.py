"""Which rows of a usage report are shown."""

from __future__ import annotations

from hlomem.write.build import count_shown


def test_a_share_of_exactly_five_percent_is_not_negligible() -> None:
    # A hundred scalars: XLA multiplies in single precision, where 5 % of 51,200 are 2,560.
    assert count_shown([512] * 100) == (96, True)


def test_what_is_negligible_is_shown_up_to_fifty() -> None:
    assert count_shown([1_000_000] + [1] * 60) == (51, True)
    assert count_shown([1_000_000] + [1] * 49) == (50, False)
