"""Sizes, read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.base.sizes import format_bytes, format_change, parse_printed_size, parse_size


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


@given(st.integers(0, 2**62))
def test_what_is_written_is_read_back_nearly(size: int) -> None:
    read = parse_printed_size(format_bytes(size))
    assert abs(read - size) <= max(0.5, 0.05 * size)


@given(st.integers(0, 10**17))
def test_people_and_programs_mean_the_same_by_bytes(size: int) -> None:
    assert parse_size(f"{size}") == parse_printed_size(f"{size} bytes") == size


def test_less_than_nothing_has_a_sign() -> None:
    assert format_bytes(-(1 << 30)) == "-1.00 GiB"
    assert parse_printed_size("-1.00G") == -(1 << 30)


def test_programs_mean_powers_of_1024_whatever_they_say() -> None:
    assert parse_printed_size("16GB") == 16 << 30
    assert parse_size("16GB") == 16 * 10**9


def test_what_a_program_did_not_print_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a size: much"):
        parse_printed_size("much")


def test_a_change_has_a_sign_and_nothing_is_no_less_than_nothing() -> None:
    assert format_change(31, 1000) == "+3.1%"
    assert format_change(-4, 1000) == "-0.4%"
    assert format_change(-4, 100_000) == format_change(0, 0) == "+0.0%"


def test_a_printed_number_without_a_unit_is_of_bytes() -> None:
    assert [parse_printed_size(text) for text in ("0.0", "12", "2.5")] == [0, 12, 2]
