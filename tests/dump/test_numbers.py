"""Numbers as XLA prints them."""

from __future__ import annotations

import pytest

from hlomem.dump.grammar import human_bytes, spaced


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1.0KiB"),
        (1536, "1.5KiB"),
        (222212, "217.0KiB"),
        (1024 * 1024 - 1, "1024.0KiB"),
        (1024 * 1024, "1.00MiB"),
        (18210000, "17.37MiB"),
        (1610612736, "1.50GiB"),
        (2**40, "1.00TiB"),
        (2**50, "1.00PiB"),
        (2**60, "1.00EiB"),
        (2**63 - 1, "8.00EiB"),
        (-1, "-1B"),
        (-1536, "-1.5KiB"),
    ],
)
def test_sizes_are_rounded_as_xla_rounds_them(size: int, text: str) -> None:
    assert human_bytes(size) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1 000"), (1610612736, "1 610 612 736"), (-1000, "-1 000")],
)
def test_thousands_are_separated_by_a_space(number: int, text: str) -> None:
    assert spaced(number) == text
