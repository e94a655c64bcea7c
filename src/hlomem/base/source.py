"""A text with a name, places in it, and how an error points at one.

Readers keep offsets only; line, column and caret are computed here when something is wrong.
Lines end at "\\n" and nowhere else: `str.splitlines` would also split at eight characters that
may stand inside a name.
"""

from __future__ import annotations

import re

from hlomem.base.named_tuples import NamedTuple

EXCERPT_COLUMNS = 96
_MARGIN = 30

# Patterns as text, here and elsewhere: `re` compiles them when they are needed, and keeps them.
INVISIBLE = (
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""C0 and C1 controls, line and paragraph separators, bidi controls, characters without width and
lone surrogates: what must never reach a terminal."""


# Between backquotes, with the first and last characters to keep.
_LONG_QUOTE = r"`([^`]{60})[^`]{20,}?([^`]{20})`"


class Span(NamedTuple):
    """A half-open range of character offsets."""

    start: int
    end: int


class Place(NamedTuple):
    """Line and column, both counted from 1."""

    line: int
    column: int


def visible(text: str) -> str:
    """`text` with control, bidi and undecodable characters written as escapes, fit for a screen."""
    if text.isascii() and text.isprintable():  # as nearly all are; the pattern is large
        return text
    return re.sub(INVISIBLE, _escape, text)


def visible_lines(text: str) -> str:
    """The same for a text of several lines, which stay lines."""
    return "\n".join(map(visible, text.split("\n")))


def elide(text: str) -> str:
    """`text` with the middle left out of each long name that stands between backquotes."""
    return re.sub(_LONG_QUOTE, r"`\1…\2`", text) if len(text) > EXCERPT_COLUMNS else text


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if 0xDC80 <= code <= 0xDCFF:  # an undecodable byte, as surrogateescape keeps it
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class Source:
    """A text and the name its user knows it by (a path, `<stdin>`, `<string>`)."""

    __slots__ = ("name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    def place(self, offset: int) -> Place:
        """Line and column of a character offset."""
        start = self.text.rfind("\n", 0, offset) + 1
        return Place(self.text.count("\n", 0, start) + 1, offset - start + 1)

    @property
    def first_line(self) -> Span:
        """The span to point at when a text is wrong as a whole."""
        return Span(0, max(self.text.find("\n"), 1))

    def render(self, span: Span, problem: str, hint: str = "") -> str:
        """`name:line:col: problem`, the line, a caret under the place, and what to do."""
        line, column = self.place(span.start)
        start = span.start - column + 1
        low = max(0, column - 1 - _MARGIN) if column > EXCERPT_COLUMNS - _MARGIN else 0
        window_start = start + low
        end = self.text.find("\n", span.start)
        end = len(self.text) if end < 0 else end
        window_end = min(end, window_start + EXCERPT_COLUMNS)
        before = ("… " if low else "") + visible(self.text[window_start : span.start])
        marked = visible(self.text[span.start : max(span.start, min(span.end, window_end))])
        after = visible(
            self.text[span.start + max(0, min(span.end, window_end) - span.start) : window_end]
        ) + (" …" if window_end < end else "")
        gutter = f"{line} | "
        rows = [
            f"{visible(self.name)}:{line}:{column}: {problem}",
            f"{gutter}{before}{marked}{after}",
            " " * (len(gutter) - 2) + "| " + " " * len(before) + "^" * max(1, len(marked)),
        ]
        if hint:
            rows.append(" " * (len(gutter) - 2) + f"= {hint}")
        return "\n".join(rows)
