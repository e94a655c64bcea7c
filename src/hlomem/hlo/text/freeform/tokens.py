"""The tokens of HLO text, one after the other, as XLA's lexer cuts them.

In: a source and a position. Out: `Tokens`, a cursor whose current token has a kind, a value and a
span. Blanks, line breaks and comments between tokens are skipped; a name and
the `:` or `=` after it are one token. Mirrors `hlo/parser/hlo_lexer.cc`. Differences: an integer
keeps its digits, and its range is checked by the caller.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn, TypeVar

from hlomem.base.errors import ParseError
from hlomem.base.patterns import lazy_pattern, repeated
from hlomem.base.source import Span
from hlomem.hlo.shape import ELEMENT_TYPE_BY_TEXT, INT64_MAX, Shape, default_layout
from hlomem.hlo.shape_edits import map_leaves
from hlomem.hlo.text.attributes import STRING, unescape
from hlomem.hlo.text.shape_parser import ShapeTable, parse_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.base.source import Source

T = TypeVar("T")

MAX_TOKENS = 5_000_000  # some ten seconds, and a gigabyte
INT64_MIN = -INT64_MAX - 1
_UINT64_MAX = 2**64 - 1
_MAX_DIGITS = 20

_KEYWORDS = (
    "ENTRY FileLocations FileNames FunctionNames HloModule ROOT StackFrames false inf manual "
    "last_tile_dim_replicate maximal replicated shard_as shard_like true unknown unreduced"
)
KEYWORDS = frozenset(_KEYWORDS.split())
"""Words that are tokens of their own kind, and so no names."""

_BLANKS = lazy_pattern(repeated(r"[ \t\r\n]++|//[^\r\n]*+|/\*(?s:.*?)\*/"))
_WORD = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_.\-]*+")
_NAN = lazy_pattern(r"-?nan(?:\((0x[0-9a-fA-F]{1,13})\))?")
_DIM_LABELS = r"[0-9bf?]{2,}_[0-9io?]{2,}->[0-9bf?]{2,}"
_LABELS = lazy_pattern(_DIM_LABELS)
_PAD = r"-?[0-9]++_-?[0-9]++(?:_[0-9]++)?+"
_NUMBER = lazy_pattern(
    r"(?P<decimal>-?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)[eE][+-]?[0-9]++"
    r"|-?(?:[0-9]++\.[0-9]*+|\.[0-9]++))"
    rf"|(?P<labels>{_DIM_LABELS})"
    rf"|(?P<pad>{_PAD}{repeated(f'x{_PAD}')})"
    rf"|(?P<sizes>[0-9]++x[0-9]++{repeated('x[0-9]++')})"
    r"|(?P<integer>-?[0-9]++)"
    r"|(?P<minus_inf>-inf)"
)
_STRING = lazy_pattern(STRING, re.DOTALL)
_IN_QUOTES = repeated(r'[^"\\]++|\\.')
_BRACED = lazy_pattern(rf'[^"{{}}]++|"{_IN_QUOTES}"|["{{}}]', re.DOTALL)
_PAIRS = ("->", "<=", "...")
_MARKS = frozenset("=,:*#+~[]{}()")
_CLOSER = {"{": "}", "(": ")", "[": "]"}


class TooLongError(ParseError):
    """A text of more tokens than are read."""


class Tokens:
    """A position in a text, and the token that begins there."""

    def __init__(self, source: Source, start: int = 0, end: int | None = None) -> None:
        self.source = source
        self.text = source.text
        self.end = len(source.text) if end is None else min(end, len(source.text))
        """The end of the tokens; one that begins before may go past it."""
        self.shapes = ShapeTable()
        self.kind = ""
        """`name`, `word`, `attribute`, `type`, `string`, `integer`, `decimal`, `sizes` (`1x2`),
        `pad`, `labels`, `end`; a keyword and a mark are their own kind."""
        self.value = ""
        self.start = self.stop = self.before = start
        """The begin and end of the token, and the end of the one before."""
        self._count = 0
        self.advance()

    def advance(self) -> None:
        """Go to the next token."""
        self._count += 1
        if self._count > MAX_TOKENS:
            problem = f"more than {MAX_TOKENS} symbols in a layout that XLA does not print"
            span = Span(self.start, self.start + 1)
            raise TooLongError(self.source, span, problem, "put one instruction on each line")
        text, end = self.text, self.end
        position = self.before = self.stop
        if position < end and text[position] in " \n/\t\r":
            match = _BLANKS.match(text, position, end)
            assert match is not None, "matches the empty text, too"
            position = match.end()
        self.start = position
        if position >= end:
            self._take("end", "", position)
            return
        mark = text[position]
        if mark in _MARKS:
            self._take(mark, mark, position + 1)
        elif mark.isascii() and (mark.isalpha() or mark == "_"):
            self._take_word(position)
        elif mark == "%":
            self._take_name(position)
        elif mark in "\"'":
            self._take_string(position)
        else:
            self._take_number(position)

    def _take(self, kind: str, value: str, stop: int) -> None:
        self.kind, self.value, self.stop = kind, value, stop

    def _take_word(self, position: int) -> None:
        match = _WORD.match(self.text, position)
        assert match is not None, "begins with a letter"
        word, stop = match.group(), match.end()
        after = self.text[stop : stop + 1]
        if after == ":":
            self._take("name", word, stop + 1)
        elif after == "=":
            self._take("attribute", word, stop + 1)
        elif word in ELEMENT_TYPE_BY_TEXT:
            self._take("type", word, stop)
        elif word == "nan":
            self._take_nan(position)
        elif word in KEYWORDS:
            self._take(word, word, stop)
        elif labels := _LABELS.match(self.text, position):
            self._take("labels", labels.group(), labels.end())
        else:
            self._take("word", word, stop)

    def _take_name(self, position: int) -> None:
        match = _WORD.match(self.text, position + 1)
        if match is None:
            self.stop = position + 1
            self.fail("expected a name after `%`")
        self._take("name", match.group(), match.end())

    def _take_string(self, position: int) -> None:
        match = _STRING.match(self.text, position)
        if match is None:
            self.stop = position + 1
            self.fail("string is never closed")
        self._take("string", unescape(match.group()[1:-1]), match.end())

    def _take_nan(self, position: int) -> None:
        match = _NAN.match(self.text, position)
        assert match is not None, "the caller saw it"
        self._take("decimal", match.group(), match.end())

    def _take_number(self, position: int) -> None:
        text = self.text
        for pair in _PAIRS:
            if text.startswith(pair, position):
                self._take(pair, pair, position + len(pair))
                return
        match = _NUMBER.match(text, position)
        if match is not None:
            self._take(match.lastgroup or "", match.group(), match.end())
        elif text.startswith("-nan", position):
            self._take_nan(position)
        elif text[position] == "?":
            self._take("?", "?", position + 1)
        else:
            self.stop = position + 1
            never = "comment is never closed" if text.startswith("/*", position) else ""
            self.fail(never or f"unexpected `{text[position]}`")

    # --- the next token -----------------------------------------------------------------------

    def peek(self, length: int = 1) -> str:
        """The text the next token begins with."""
        match = _BLANKS.match(self.text, self.stop, self.end)
        assert match is not None, "matches the empty text, too"
        return self.text[match.end() : match.end() + length]

    def eat(self, kind: str) -> bool:
        """Pass over a token if it is of a kind; whether it was."""
        if self.kind != kind:
            return False
        self.advance()
        return True

    def expect(self, kind: str) -> str:
        """Pass over a token that must be of a kind; returns its value."""
        if self.kind != kind:
            named = f"`{kind}`" if kind in _MARKS or kind in _PAIRS else _SAID.get(kind, kind)
            self.fail(f"expected {named}")
        return self.take()

    def take(self) -> str:
        """Pass over a token; returns its value."""
        value = self.value
        self.advance()
        return value

    def listed(
        self,
        read: Callable[[Tokens], T],
        brackets: str = "{}",
        comma: str = ",",
        *,
        may_trail: bool = False,
    ) -> list[T]:
        """Any number of items in brackets (`ParseList`); a comma may come last if that is said."""
        self.expect(brackets[0])
        items: list[T] = []
        while self.kind != brackets[1] or (items and not may_trail):
            items.append(read(self))
            if not self.eat(comma):
                break
        self.expect(brackets[1])
        return items

    def fields(self, readers: Mapping[str, Callable[[Tokens], T]], where: str) -> dict[str, T]:
        """`{name=value name=value}`, with commas or without (`ParseSubAttributes`)."""
        self.expect("{")
        found: dict[str, T] = {}
        while self.kind != "}":
            self.eat(",")
            start, name = self.start, self.expect("attribute")
            if name in found:
                self.fail(f"`{name}=` is given twice", start=start)
            reader = readers.get(name)
            if reader is None:
                shown = ", ".join(f"`{known}`" for known in readers)
                self.fail(f"{where} has no `{name}=`", f"it has {shown}", start)
            found[name] = reader(self)
        self.advance()
        return found

    def form(self, form: str) -> list[str]:
        """The integers (`i` in the form) and shape indices (`x`) between the marks of a form."""
        found: list[str] = []
        for mark in form:
            if mark == "i":
                found.append(str(self.expect_integer()))
            elif mark == "x":
                numbers = self.listed(Tokens.expect_integer, may_trail=True)
                found.append(f"{{{','.join(map(str, numbers))}}}")
            else:
                self.expect(mark)
        return found

    def expect_name(self, what: str) -> str:
        """A name: a word, or one with `%` before or `:` after it."""
        if self.kind not in ("word", "name"):
            hint = ""
            if self.kind == "attribute":
                hint = f"a blank is missing before the `=` of `{self.value}=`"
            elif self.kind == "type" or self.kind in KEYWORDS:
                hint = f"`{self.value}` has a meaning of its own"
            self.fail(f"expected {what}", hint)
        return self.take()

    def expect_integer(self, what: str = "an integer") -> int:
        """An integer of 64 bits, with its sign."""
        number = self.integer(what)
        if not INT64_MIN <= number <= INT64_MAX:
            self.fail("number does not fit into 64 bits")
        self.advance()
        return number

    def integer(self, what: str = "an integer") -> int:
        """The integer at this position, of 64 bits, signed or unsigned."""
        if self.kind != "integer":
            self.fail(f"expected {what}")
        digits = self.value.lstrip("-").lstrip("0") or "0"
        number = int(digits) if len(digits) <= _MAX_DIGITS else _UINT64_MAX + 1
        number = -number if self.value[0] == "-" else number
        if not INT64_MIN <= number <= _UINT64_MAX:
            self.fail("number does not fit into 64 bits")
        return number

    def begins_shape(self) -> bool:
        """Whether a shape may begin here: `f32[2]`, `(f32[], s32[])`, `b(f32[])`."""
        if self.kind == "word":
            return self.value == "b" and self.text.startswith("(", self.stop)
        return self.kind in ("type", "(")

    def read_shape(self) -> Shape:
        """A shape; where it has no layout it gets the default one."""
        shape, stop = parse_shape(self.source, self.start, self.shapes)
        self.stop = stop
        self.advance()
        return with_layouts(shape)

    def read_braced(self) -> str:
        """The text from `{` to the `}` that closes it, strings respected, as it was written."""
        start, depth = self.start, 0
        for match in _BRACED.finditer(self.text, start):
            mark = match.group()
            if mark == '"':
                self.start, self.stop = match.span()
                self.fail("string is never closed")
            depth += (mark == "{") - (mark == "}")
            if depth == 0:
                self.stop = match.end()
                self.advance()
                return self.text[start : match.end()]
        return self.fail("`{` is never closed")

    def read_unknown(self, name: str) -> str:
        """The value of an attribute that is not known: up to the next comma or instruction."""
        pieces: list[str] = []
        closers: list[str] = []
        while closers or not self._ends_value():
            if self.kind == "end":
                self.fail("unexpected end of the text")
            gap = " " if pieces and self.before < self.start else ""
            if self.kind in _CLOSER:
                closers.append(_CLOSER[self.kind])
            elif self.kind in ("}", ")", "]") and (not closers or closers.pop() != self.kind):
                self.fail(f"unbalanced `{self.kind}`")
            pieces.append(gap + self.text[self.start : self.stop])
            self.advance()
        if not pieces:
            self.fail(f"attribute `{name}` has no value")
        return "".join(pieces).replace("\n", "\\n")

    def _ends_value(self) -> bool:
        if self.kind in (",", "}", "ROOT", "ENTRY", "end"):
            return True
        return self.kind in ("word", "name") and self.peek() == "="

    def fail(self, problem: str, hint: str = "", start: int | None = None) -> NoReturn:
        """Point at the current token, or at the text from `start` to its end."""
        begin = self.start if start is None else start
        span = Span(begin, max(begin + 1, self.stop if start is None else self.start))
        raise ParseError(self.source, span, problem, hint)


_SAID = {"string": "a string", "attribute": "`name=`", "type": "an element type"}


def with_layouts(shape: Shape) -> Shape:
    """A shape whose arrays all have a layout (`LayoutUtil::SetToDefaultLayout`)."""
    return map_leaves(shape, _with_layout)


def _with_layout(array: Shape) -> Shape:
    return array if array.layout else array.with_layout(default_layout(array.rank))
