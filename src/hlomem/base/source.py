"""A named text, and the excerpt with which an error points into it.

Readers keep character offsets; lines and columns are computed when an error is printed. Lines end
at "\\n" only: `str.splitlines` also splits at eight characters that are legal in names.
"""

from __future__ import annotations

import re
from typing import NamedTuple

EXCERPT_COLUMNS = 96
_MARGIN = 30

# A plain string: `re` compiles it on first use and caches it.
INVISIBLE = (
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Characters that must not reach a terminal: C0 and C1 controls, line and paragraph separators,
bidi controls, zero-width characters and lone surrogates."""

_LONG_QUOTE = r"`([^`]{60})[^`]{20,}?([^`]{20})`"


class Span(NamedTuple):
    """A half-open range of character offsets."""

    start: int
    end: int


class Position(NamedTuple):
    """Line and column, counted from 1."""

    line: int
    column: int


def visible(text: str) -> str:
    """`text` with `INVISIBLE` characters written as escapes."""
    if text.isascii() and text.isprintable():  # spares compiling the large pattern
        return text
    return re.sub(INVISIBLE, _escape, text)


def visible_lines(text: str) -> str:
    return "\n".join(map(visible, text.split("\n")))


def elide(text: str) -> str:
    """`text` with long names in backquotes shortened in the middle."""
    return re.sub(_LONG_QUOTE, r"`\1…\2`", text) if len(text) > EXCERPT_COLUMNS else text


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if 0xDC80 <= code <= 0xDCFF:  # an undecodable byte, as surrogateescape keeps it
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class Source:
    """A text and its name: a path, `<stdin>`, `<string>`."""

    __slots__ = ("name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    def position(self, offset: int) -> Position:
        start = self.text.rfind("\n", 0, offset) + 1
        return Position(self.text.count("\n", 0, start) + 1, offset - start + 1)

    @property
    def first_line(self) -> Span:
        """The span for errors about the whole text."""
        return Span(0, max(self.text.find("\n"), 1))

    def render(self, span: Span, problem: str, hint: str = "") -> str:
        """`name:line:col: problem`, an excerpt of the line with carets, and a hint."""
        line, column = self.position(span.start)
        hidden = max(0, column - 1 - _MARGIN) if column > EXCERPT_COLUMNS - _MARGIN else 0
        start = span.start - column + 1 + hidden
        line_end = self.text.find("\n", span.start)
        line_end = len(self.text) if line_end < 0 else line_end
        end = min(line_end, start + EXCERPT_COLUMNS)
        marked_end = max(span.start, min(span.end, end))
        before = ("… " if hidden else "") + visible(self.text[start : span.start])
        marked = visible(self.text[span.start : marked_end])
        after = visible(self.text[marked_end:end]) + (" …" if end < line_end else "")
        gutter = f"{line} | "
        indent = " " * (len(gutter) - 2)
        rows = [
            f"{visible(self.name)}:{line}:{column}: {problem}",
            f"{gutter}{before}{marked}{after}",
            f"{indent}| {' ' * len(before)}{'^' * max(1, len(marked))}",
        ]
        return "\n".join([*rows, f"{indent}= {hint}"] if hint else rows)
