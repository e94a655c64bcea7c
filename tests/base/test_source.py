"""Places in a text, and how an error points at one."""

from __future__ import annotations

import pytest

from hlomem.base.errors import EXIT_UNREADABLE, EXIT_USAGE, CommandError, ParseError
from hlomem.base.source import EXCERPT_COLUMNS, Position, Source, Span, visible

TEXT = Source("t.txt", "ab\n\ncdé\x85f")


@pytest.mark.parametrize(
    ("offset", "position"),
    [
        (0, Position(1, 1)),
        (2, Position(1, 3)),
        (3, Position(2, 1)),
        (4, Position(3, 1)),
        (9, Position(3, 6)),
    ],
)
def test_an_offset_has_a_line_and_a_column(offset: int, position: Position) -> None:
    assert TEXT.position(offset) == position


def test_an_error_shows_name_place_line_caret_and_advice() -> None:
    error = ParseError(TEXT, Span(5, 7), "no good", "do better")
    assert (error.line, error.column) == (3, 2)
    assert str(error) == "t.txt:3:2: no good\n3 | cdé\\x85f\n  |  ^^\n  = do better"


def test_a_caret_stands_even_under_nothing() -> None:
    assert TEXT.render(Span(3, 3), "empty") == "t.txt:2:1: empty\n2 | \n  | ^"


def test_a_span_over_several_lines_is_marked_on_its_first() -> None:
    assert TEXT.render(Span(0, 9), "all") == "t.txt:1:1: all\n1 | ab\n  | ^^"


def test_a_long_line_is_shown_around_the_place() -> None:
    source = Source("t", "x" * 5000 + "HERE" + "y" * 5000)
    _, line, caret = source.render(Span(5000, 5004), "p").split("\n")
    assert len(line) <= len("1 | ") + EXCERPT_COLUMNS + 4
    assert line.startswith("1 | … xxx")
    assert line.endswith("yyy …")
    assert line[caret.index("^") : caret.rindex("^") + 1] == "HERE"


def test_a_long_line_is_shown_from_its_start_where_the_place_is_near() -> None:
    source = Source("t", "HERE" + "y" * 5000)
    assert source.render(Span(0, 4), "p").split("\n")[1:] == [
        "1 | HERE" + "y" * (EXCERPT_COLUMNS - 4) + " …",
        "  | ^^^^",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é×│", "plain é×│"),
        ("\x1b[31m\t", "\\x1b[31m\\x09"),
        ("\x9b\u202e\u2028\ufeff", "\\x9b\\u202e\\u2028\\ufeff"),
        ("\udcff\ud800", "\\xff\\ud800"),
    ],
)
def test_what_a_terminal_must_not_see_is_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_carets_stay_under_escaped_text() -> None:
    source = Source("\x1b", "\x00a")
    assert source.render(Span(1, 2), "p") == "\\x1b:1:2: p\n1 | \\x00a\n  |     ^"


def test_errors_carry_their_exit_code() -> None:
    assert ParseError(TEXT, Span(0, 0), "p").exit_code == EXIT_UNREADABLE
    assert CommandError("p").exit_code == EXIT_USAGE
