"""The grammar of a dump's lines: matching them, and explaining a line that does not match.

A form is a sequence of pieces, each a regular expression with the words for what it expects.
Joined, they match a whole line (or block) at once, which is fast; tried one after another, they
find the column at which a bad line goes wrong. Every piece is free of nested repetition, so
matching takes time proportional to the text.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from hlomem.base.errors import ParseError
from hlomem.base.source import Span, visible
from hlomem.dump.numbers import spaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.base.quantities import (
        AllocationIndex,
        ByteCount,
        Color,
        Offset,
        ParameterNumber,
        Step,
        ValueId,
    )
    from hlomem.base.source import Source
    from hlomem.dump.records import ShapeIndex

_INT64_MAX = 2**63 - 1


def _at_most(limit: str) -> str:
    """A pattern for the numbers of as many digits as `limit` that are not above it."""
    smaller = [
        f"{limit[:i]}[{lowest}-{int(digit) - 1}]" + _any_digits(limit[i + 1 :])
        for i, digit in enumerate(limit)
        if digit != " " and int(digit) > (lowest := int(i == 0))
    ]
    return "|".join([*smaller, limit])


def _any_digits(like: str) -> str:
    return " ".join([f"[0-9]{{{len(run)}}}" if run else "" for run in like.split(" ")])


# Digits are spelled [0-9] everywhere: \d also matches those of other scripts.
INT64 = rf"(?:0|-?(?:[1-9][0-9]{{0,17}}|{_at_most(str(_INT64_MAX))}))(?![0-9])"
"""A number that fits 64 bits."""

SPACED_INT64 = (
    r"(?:0|-?(?:[1-9][0-9]{0,2}(?: [0-9]{3}){0,5}"
    rf"|{_at_most(spaced(_INT64_MAX))}))(?! ?[0-9])"
)
"""The same with a space between thousands."""

NAME = r"[^\s{}<>:,()|]++"
"""An instruction's name: XLA writes letters, digits, `_`, `.` and `-`; others are let through."""

_STEP = "(?:0|[1-9][0-9]{0,8})"
INDEX = rf"\{{(?:{_STEP}(?:,{_STEP})*)?\}}"
"""A shape index in its braces."""

_CUT_OFF = "the text is cut off: was the disk full, or the program stopped while writing?"
_DIGITS = "-?[0-9]+(?: [0-9]{3})*"


class Form:
    """A line or block as a sequence of pieces; the groups of all pieces are its fields."""

    def __init__(self, *pieces: tuple[str, str]) -> None:
        self._pieces = pieces
        self._pattern = "".join(pattern for pattern, _ in pieces)

    @cached_property
    def match(self) -> Callable[..., re.Match[str] | None]:
        """The match of the whole form at a place of a text, if it is there."""
        return re.compile(self._pattern).match

    @cached_property
    def findall(self) -> Callable[..., list[Any]]:
        """The fields of every line of a text that is of this form."""
        return re.compile(f"(?m:^){self._pattern}").findall

    def require(self, source: Source, start: int, end: int | None = None) -> re.Match[str]:
        """The match at `start`, or the error that says where it fails."""
        end = len(source.text) if end is None else end
        match = self.match(source.text, start, end)
        if match is None:
            raise self.explain(source, start, end)
        return match

    def explain(self, source: Source, start: int, end: int | None = None) -> ParseError:
        """Why the text at `start` is not of this form: the first piece that does not match."""
        end = len(source.text) if end is None else end
        place, wanted = start, self._pieces[-1][1]
        for pattern, expected in self._pieces:
            match = re.compile(pattern).match(source.text, place, end)
            if match is None:
                wanted = expected
                break
            place = match.end()
        return unexpected(source, place, wanted)

    def find_lines(self, source: Source, start: int, end: int) -> list[tuple[str, ...]]:
        """The fields of every line in [start, end), each of which must be of this form."""
        found = self.findall(source.text, start, end)
        if len(found) != source.text.count("\n", start, end):
            raise self._first_bad_line(source, start, end)
        return found

    def _first_bad_line(self, source: Source, start: int, end: int) -> ParseError:
        while (match := self.match(source.text, start, end)) is not None:
            start = match.end()
        return self.explain(source, start, end)


def unexpected(source: Source, place: int, wanted: str) -> ParseError:
    """The error for text at `place` that should have been `wanted`."""
    if place >= len(source.text):
        problem = f"the text ends here; expected {wanted}"
        return ParseError(source, Span(place, place), problem, _CUT_OFF)
    digits = re.compile(_DIGITS).match(source.text, place)
    if digits and "number" in wanted and not _fits_64_bits(digits.group()):
        return ParseError(source, Span(*digits.span()), "number does not fit 64 bits")
    found = re.compile(r"\n|\w+|.").match(source.text, place)
    word = found.group() if found else ""
    shown = "the end of the line" if word == "\n" else f"`{visible(word[:40])}`"
    return ParseError(
        source, Span(place, place + len(word.strip("\n")[:40])), f"expected {wanted}, found {shown}"
    )


def _fits_64_bits(text: str) -> bool:
    digits = text.replace(" ", "").lstrip("-0")
    return len(digits) < 20 and int(digits or 0) <= _INT64_MAX


# The digits of a field as the kind of number they are: while the program runs, each is `int`.
parse_value_id = cast("Callable[[str], ValueId]", int)
parse_allocation_index = cast("Callable[[str], AllocationIndex]", int)
parse_parameter_number = cast("Callable[[str], ParameterNumber]", int)
parse_color = cast("Callable[[str], Color]", int)
parse_offset = cast("Callable[[str], Offset]", int)
parse_byte_count = cast("Callable[[str], ByteCount]", int)
parse_step = cast("Callable[[str], Step]", int)

_index_by_text: dict[str, ShapeIndex | None] = {"": None, "{}": ()}


def parse_index(text: str) -> ShapeIndex | None:
    """The shape index `{1,0}` as (1, 0); None for no text, where XLA prints no index."""
    try:
        return _index_by_text[text]
    except KeyError:
        index = tuple(map(int, text[1:-1].split(",")))
        if len(_index_by_text) < 10_000:
            _index_by_text[text] = index
        return index


def format_index(index: ShapeIndex | None) -> str:
    """`{1,0}`, or nothing for None (XLA: ShapeIndex::ToString)."""
    if index is None:
        return ""
    return "{" + ",".join(map(str, index)) + "}" if index else "{}"
