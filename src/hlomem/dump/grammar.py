"""How the lines of a dump are matched, and how a line that does not match is explained.

A form is a sequence of pieces, each a regular expression with the words for what it expects.
Joined, they match a whole line (or block) at once, which is fast; tried one after another, they
find the column at which a bad line goes wrong. Every piece is free of nested repetition, so
matching takes time proportional to the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlomem.errors import ParseError
from hlomem.source import Span, visible

if TYPE_CHECKING:
    from hlomem.dump.records import ShapeIndex
    from hlomem.source import Source

_INT64_MAX = str(2**63 - 1)


def _at_most(limit: str) -> str:
    """A pattern for the numbers of as many digits as `limit` that are not above it."""
    lowest = [1] + [0] * (len(limit) - 1)
    smaller = [
        f"{limit[:i]}[{lowest[i]}-{int(digit) - 1}]\\d{{{len(limit) - i - 1}}}"
        for i, digit in enumerate(limit)
        if int(digit) > lowest[i]
    ]
    return "|".join([*smaller, limit])


INT64 = rf"(?:0|-?(?:[1-9]\d{{0,17}}|{_at_most(_INT64_MAX)}))(?!\d)"
"""A number that fits 64 bits."""

NAME = r"[^\s{}<>:,()|]+"
"""An instruction's name: XLA writes letters, digits, `_`, `.` and `-`; others are let through."""

INDEX = r"\{(?:\d{1,9}(?:,\d{1,9})*)?\}"
"""A shape index in its braces."""

_CUT_OFF = "the text is cut off: was the disk full, or the program stopped while writing?"
_TOO_BIG = re.compile(r"-?\d{19}")


class Form:
    """A line or block as a sequence of pieces; the groups of all pieces are its fields."""

    def __init__(self, *pieces: tuple[str, str]) -> None:
        self._pieces = [(re.compile(pattern), expected) for pattern, expected in pieces]
        self.pattern = re.compile("".join(pattern for pattern, _ in pieces))
        self.match = self.pattern.match
        self.findall = self.pattern.findall

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
            match = pattern.match(source.text, place, end)
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
    if _TOO_BIG.match(source.text, place) and "number" in wanted:
        end = re.compile(r"-?\d+").match(source.text, place).end()  # type: ignore[union-attr]
        return ParseError(source, Span(place, end), "number does not fit 64 bits")
    found = re.compile(r"\n|\w+|.").match(source.text, place)
    word = found.group() if found else ""
    shown = "the end of the line" if word == "\n" else f"`{visible(word[:40])}`"
    return ParseError(
        source, Span(place, place + len(word.strip("\n")[:40])), f"expected {wanted}, found {shown}"
    )


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
    return "" if index is None else "{" + ",".join(map(str, index)) + "}"
