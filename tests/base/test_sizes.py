"""Sizes, read and written."""

from __future__ import annotations

import pytest

from hlomem.base.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    {
        "512": 512,
        "512B": 512,
        "16GiB": 16 * 2**30,
        "16 GB": 16 * 10**9,
        "15.75G": 63 * 2**28,
        "500m": 500 * 2**20,
    }.items(),
)
def test_binary_unless_it_says_otherwise(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "16 gallons", "1" * 40])
def test_what_is_no_size(text: str) -> None:
    assert parse_size(text) is None
