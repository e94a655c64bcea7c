"""Forms: what matches, and how what does not is explained."""

from __future__ import annotations

import re

import pytest

from hlomem.base.errors import ParseError
from hlomem.base.source import Source
from hlomem.dump.grammar import (
    INDEX,
    INT64,
    NAME,
    SPACED_INT64,
    Form,
    format_index,
    parse_index,
    spaced,
    unexpected,
)

EDGES = [0, 1, 9, 10, 10**18 - 1, 10**18, 9 * 10**18, 2**63 - 2, 2**63 - 1]


@pytest.mark.parametrize("number", [*EDGES, *[-n for n in EDGES if n]])
def test_numbers_of_64_bits_match(number: int) -> None:
    assert re.fullmatch(INT64, str(number))
    assert re.fullmatch(SPACED_INT64, spaced(number))


@pytest.mark.parametrize("number", [2**63, 2**63 + 10, 9300000000000000000, 10**19, 10**30])
def test_larger_numbers_do_not_match(number: int) -> None:
    assert not re.match(INT64, str(number))
    assert not re.match(SPACED_INT64, spaced(number))


@pytest.mark.parametrize("text", ["00", "01", "-0", "+1", "", "1_0", "٣", "²", "0x1", "1.0", " 1"])
def test_numbers_written_another_way_do_not_match(text: str) -> None:
    assert not re.fullmatch(INT64, text)
    assert not re.fullmatch(SPACED_INT64, text)


@pytest.mark.parametrize("text", ["1000", "1 00", "1 0000", "1  000", "0 001", "12 34"])
def test_thousands_separated_another_way_do_not_match(text: str) -> None:
    assert not re.match(SPACED_INT64 + "$", text)


@pytest.mark.parametrize(
    ("text", "index"), [("", None), ("{}", ()), ("{0}", (0,)), ("{1,0,12}", (1, 0, 12))]
)
def test_an_index_is_read_and_printed(text: str, index: tuple[int, ...] | None) -> None:
    assert parse_index(text) == index
    assert format_index(index) == text
    assert text == "" or re.fullmatch(INDEX, text)


@pytest.mark.parametrize("text", ["{01}", "{-1}", "{1,}", "{,}", "{ 1}", "{1, 2}", "{٣}", "{x}"])
def test_an_index_written_another_way_does_not_match(text: str) -> None:
    assert not re.match(INDEX, text)


def test_more_indices_than_are_remembered_are_read() -> None:
    assert [parse_index(f"{{{n}}}") for n in range(10_050)] == [(n,) for n in range(10_050)]


@pytest.mark.parametrize("delimiter", "{}<>:,()| \t\n\r\u2028\x85")
def test_a_name_ends_at_a_delimiter(delimiter: str) -> None:
    match = re.match(NAME, f"a.b-c_1{delimiter}x")
    assert match is not None
    assert match.group() == "a.b-c_1"


PAIR = Form((r"([a-z]+)", "a word"), ("=", "`=`"), (rf"({INT64})\n", "a number"))


def test_a_form_gives_the_fields_of_every_line() -> None:
    assert PAIR.find_lines(Source("t", "a=1\nb=2\n"), 0, 8) == [("a", "1"), ("b", "2")]


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("a=1\n=2\n", 2, 1, "expected a word, found `=`"),
        ("a=1\nb:2\n", 2, 2, "expected `=`, found `:`"),
        ("a=1\nb=x\n", 2, 3, "expected a number, found `x`"),
        ("a=1\nb=\n", 2, 3, "expected a number, found the end of the line"),
        ("a=1\n9 b=2\n", 2, 1, "expected a word, found `9`"),
        ("a=1\nb=9223372036854775808\n", 2, 3, "number does not fit 64 bits"),
        ("a=1\nb=\x1b[31m\n", 2, 3, r"expected a number, found `\x1b`"),
    ],
)
def test_the_first_bad_line_is_explained(text: str, line: int, column: int, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        PAIR.find_lines(Source("t", text), 0, len(text))
    error = caught.value
    assert (error.line, error.column, error.problem) == (line, column, problem)


def test_a_missing_end_says_that_the_text_is_cut_off() -> None:
    with pytest.raises(ParseError) as caught:
        PAIR.require(Source("t", "a="), 0)
    assert str(caught.value) == (
        "t:1:3: the text ends here; expected a number\n"
        "1 | a=\n"
        "  |   ^\n"
        "  = the text is cut off: was the disk full, or the program stopped while writing?"
    )


def test_a_long_word_is_shortened_in_the_message() -> None:
    error = unexpected(Source("t", "x" * 1000), 0, "a number")
    assert error.problem == f"expected a number, found `{'x' * 40}`"
