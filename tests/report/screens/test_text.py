"""Sizes, bars and shortened names."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.screens.text import (
    bar,
    curve,
    moment_words,
    percent,
    plural,
    shorten,
    shorten_front,
    width,
    wrap,
    write_lines,
)


def test_sizes_have_iec_units_and_about_three_digits() -> None:
    sizes = (0, 512, 1023, 1024, 65812, 1048575, 1 << 20, 961 << 20, 1348651528, -2048)
    assert [format_bytes(size) for size in sizes] == [
        "0 B",
        "512 B",
        "1023 B",
        "1.0 KiB",
        "64.3 KiB",
        "1.00 MiB",
        "1.00 MiB",
        "961.0 MiB",
        "1.26 GiB",
        "-2.0 KiB",
    ]


@given(st.integers(0, 2**63), st.integers(0, 2**63), st.integers(1, 60))
def test_a_bar_has_its_columns_and_shows_what_is_not_nothing(
    part: int, whole: int, columns: int
) -> None:
    drawn = bar(part, whole, columns)
    assert len(drawn) == columns
    assert drawn.isspace() == (part == 0 or whole == 0)


@given(st.text(max_size=50), st.integers(1, 40))
def test_a_shortened_text_fits(text: str, columns: int) -> None:
    for short in (shorten(text, columns), shorten_front(text, columns)):
        assert len(short) == min(len(text), columns)


def test_the_middle_of_a_name_and_the_front_of_a_path_are_left_out() -> None:
    assert shorten("transpose_convert_fusion", 9) == "tran…sion"
    assert shorten_front("a/b/linear.py:663", 10) == "…ar.py:663"


def test_a_share_of_nothing_is_no_number() -> None:
    assert percent(0, 0) == "-"
    assert percent(1, 3) == "33.3%"


def test_a_curve_is_full_at_its_highest() -> None:
    assert curve([0, 50, 100, 1], 100) == "▁▅█▁"
    assert curve([0, 0], 0) == "▁▁"


def test_wrapped_lines_begin_as_asked() -> None:
    assert wrap("one two three", 9, "- ") == ["- one two", "  three"]
    assert wrap("one", 9, "first: ", "  ") == ["first:", "  one"]
    assert wrap("", 9) == [""]


@given(st.text(st.sampled_from("ab \x1b"), max_size=60), st.integers(10, 30))
def test_wrapped_text_fits_and_loses_no_short_word(text: str, columns: int) -> None:
    lines = wrap(text, columns, "  ")
    assert all(len(line) <= columns for line in lines)
    assert "\x1b" not in "".join(lines)
    if max(map(len, visible(text).split(" "))) <= columns - 2:
        assert " ".join(lines).split() == visible(text).split()


def test_one_is_not_many() -> None:
    assert [plural(count, "buffer") for count in (0, 1, 2)] == [
        "0 buffers",
        "1 buffer",
        "2 buffers",
    ]


@pytest.mark.parametrize(("columns", "used"), [(10, 60), (100, 100), (500, 120)])
def test_a_terminal_is_filled_within_reason(
    columns: int, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert width() == used


def test_lines_on_a_terminal_are_styled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    write_lines([[("needs ", ""), ("3 GiB", "bold")]])
    assert capsys.readouterr().out == "needs \x1b[1m3 GiB\x1b[0m\n"


def test_a_moment_behind_the_last_instruction_is_the_end() -> None:
    assert moment_words(7, 7, None, None, None) == "the end, after instruction 7"


def test_a_curve_of_damaged_numbers_stays_in_its_cells() -> None:
    assert curve([-5, 0, 2, 3], 2) == curve([0, 0, 2, 2], 2)
    assert curve([7], -1) == curve([0], 1)
