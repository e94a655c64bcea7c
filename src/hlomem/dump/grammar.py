"""The grammar of a dump's lines, numbers and indices.

A form is a sequence of described patterns: joined they match a block at once, one after another
they find the column of an error. No pattern nests repetition, so that matching is linear.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from hlomem.base.errors import ParseError
from hlomem.base.source import Source, Span, visible

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
    from hlomem.dump.records import ShapeIndex

_INT64_MAX = 2**63 - 1
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def human_bytes(size: int) -> str:
    """`size` rounded as XLA does: 512B, 1.5KiB, 17.37MiB (tsl: strings::HumanReadableNumBytes)."""
    sign = "-" if size < 0 else ""
    rest = abs(size)
    if rest < 1024:
        return f"{sign}{rest}B"
    unit = 0
    while rest >= 1024 * 1024 and unit < len(_UNITS) - 1:
        rest >>= 10
        unit += 1
    amount = rest / 1024
    return f"{sign}{amount:.1f}KiB" if unit == 0 else f"{sign}{amount:.2f}{_UNITS[unit]}"


def spaced(number: int) -> str:
    """`number` with a space between thousands, as in the stack-trace breakdown."""
    return f"{number:,}".replace(",", " ")


def _at_most(limit: str) -> str:
    """A pattern for numbers with as many digits as `limit`, up to it."""
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

SPACED_INT64 = (
    r"(?:0|-?(?:[1-9][0-9]{0,2}(?: [0-9]{3}){0,5}"
    rf"|{_at_most(spaced(_INT64_MAX))}))(?! ?[0-9])"
)
"""A 64-bit number with a space between thousands."""

NAME = r"[^\s{}<>:,()|]++"
"""An instruction's name: letters, digits, `_`, `.` and `-` in XLA; others are accepted."""

_STEP = "(?:0|[1-9][0-9]{0,8})"
INDEX = rf"\{{(?:{_STEP}(?:,{_STEP})*)?\}}"

_CUT_OFF = "the text is cut off: was the disk full, or the program stopped while writing?"
_DIGITS = "-?[0-9]+(?: [0-9]{3})*"


class Form:
    """A line or block as a sequence of pieces, whose groups are its fields."""

    def __init__(self, *pieces: tuple[str, str]) -> None:
        self._pieces = pieces
        self._pattern = "".join(pattern for pattern, _ in pieces)

    @cached_property
    def match(self) -> Callable[..., re.Match[str] | None]:
        return re.compile(self._pattern).match

    @cached_property
    def findall(self) -> Callable[..., list[Any]]:
        return re.compile(f"(?m:^){self._pattern}").findall

    def require(self, source: Source, start: int, end: int | None = None) -> re.Match[str]:
        """The match at `start`; raises `explain`."""
        end = len(source.text) if end is None else end
        match = self.match(source.text, start, end)
        if match is None:
            raise self.explain(source, start, end)
        return match

    def explain(self, source: Source, start: int, end: int | None = None) -> ParseError:
        end = len(source.text) if end is None else end
        cursor, wanted = start, self._pieces[-1][1]
        for pattern, expected in self._pieces:
            match = re.compile(pattern).match(source.text, cursor, end)
            if match is None:
                wanted = expected
                break
            cursor = match.end()
        return unexpected(source, cursor, wanted)

    def find_lines(self, source: Source, start: int, end: int) -> list[tuple[str, ...]]:
        """The fields of the lines in [start, end), all of which must be of this form."""
        found = self.findall(source.text, start, end)
        if len(found) == source.text.count("\n", start, end):
            return found
        while (match := self.match(source.text, start, end)) is not None:
            start = match.end()
        raise self.explain(source, start, end)


def unexpected(source: Source, offset: int, wanted: str) -> ParseError:
    if offset >= len(source.text):
        problem = f"the text ends here; expected {wanted}"
        return ParseError(source, Span(offset, offset), problem, _CUT_OFF)
    digits = re.compile(_DIGITS).match(source.text, offset)
    if digits and "number" in wanted and not _fits_64_bits(digits.group()):
        return ParseError(source, Span(*digits.span()), "number does not fit 64 bits")
    found = re.compile(r"\n|\w+|.").match(source.text, offset)
    word = found.group() if found else ""
    shown = "the end of the line" if word == "\n" else f"`{visible(word[:40])}`"
    return ParseError(
        source,
        Span(offset, offset + len(word.strip("\n")[:40])),
        f"expected {wanted}, found {shown}",
    )


def _fits_64_bits(text: str) -> bool:
    digits = text.replace(" ", "").lstrip("-0")
    return len(digits) < 20 and int(digits or 0) <= _INT64_MAX


# Digits as the integer types of their fields; each is `int` at run time.
parse_value_id = cast("Callable[[str], ValueId]", int)
parse_allocation_index = cast("Callable[[str], AllocationIndex]", int)
parse_parameter_number = cast("Callable[[str], ParameterNumber]", int)
parse_color = cast("Callable[[str], Color]", int)
parse_offset = cast("Callable[[str], Offset]", int)
parse_byte_count = cast("Callable[[str], ByteCount]", int)
parse_step = cast("Callable[[str], Step]", int)

_index_by_text: dict[str, ShapeIndex | None] = {"": None, "{}": ()}


def parse_index(text: str) -> ShapeIndex | None:
    """`{1,0}` as (1, 0); None for an empty text."""
    try:
        return _index_by_text[text]
    except KeyError:
        index = tuple(map(int, text[1:-1].split(",")))
        if len(_index_by_text) < 10_000:
            _index_by_text[text] = index
        return index


def format_index(index: ShapeIndex | None) -> str:
    """`{1,0}`; empty for None (XLA: ShapeIndex::ToString)."""
    if index is None:
        return ""
    return "{" + ",".join(map(str, index)) + "}" if index else "{}"
