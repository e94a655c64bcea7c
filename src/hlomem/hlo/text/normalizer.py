"""Brings HLO text of any layout into the layout XLA prints, remembering where everything was.

In: a source written by hand or by another tool: comments, blank lines, instructions over several
lines or several on one, any indentation. Out: the same tokens, one instruction per line, and a map
from offsets of the new text to offsets of the old. Only texts the scanner cannot cut take this
way, so it may be slow, but it is linear and needs no more of the grammar than brackets, strings,
commas and equal signs. It raises `ParseError` for brackets and strings that do not close.

Mirrors the freedoms of `hlo/parser/hlo_lexer.cc`: blanks and comments stand between any two tokens.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from enum import Enum
from typing import TYPE_CHECKING

from hlomem.base.errors import ParseError
from hlomem.base.source import Span
from hlomem.hlo.text.attributes import STRING
from hlomem.hlo.text.scanner import TABLES
from hlomem.hlo.text.stack_frames import TABLE_NAMES

if TYPE_CHECKING:
    from hlomem.base.source import Source

_TOKEN = re.compile(
    rf"""\s++|/\*.*?\*/|//[^\n]*+|{STRING}"""
    r"""|<=|[^\s{}()\[\]"'/,=<]++|.""",
    re.DOTALL,
)
_EQUAL_AHEAD = re.compile(r"\s*+=")
_LAYOUT_AHEAD = re.compile(r"\s*+[0-9:}]")
_MAX_DEPTH = 10_000
_MAX_PIECES = 5_000_000  # some seconds, and some hundred megabytes
_CLOSER = {"{": "}", "(": ")", "[": "]"}


class OffsetMap:
    """A map from positions in a rewritten text to those in the original."""

    def __init__(self) -> None:
        self._new = array("q", [0])
        self._old = array("q", [0])

    def add(self, new: int, old: int) -> None:
        """The text from `new` on was at `old`."""
        self._new.append(new)
        self._old.append(old)

    def span(self, span: Span) -> Span:
        """The span of the original that a span of the rewritten text comes from."""
        start = self._original(span.start)
        return Span(start, max(start + 1, self._original(max(span.start, span.end - 1)) + 1))

    def _original(self, offset: int) -> int:
        piece = bisect_right(self._new, offset) - 1
        return self._old[piece] + offset - self._new[piece]


class _State(Enum):
    HEADER = "the line of HloModule"
    HEAD = "a computation before its brace"
    BODY = "a computation after its brace"
    AFTER = "after a computation"


def normalize(source: Source, *, has_header: bool = True) -> tuple[str, OffsetMap]:
    """The text of a source in XLA's layout, and where everything was.

    A text without `HloModule` gets a line that calls the module `module`.
    """
    normalizer = _Normalizer(source)
    if not has_header:
        normalizer.add_header()
    normalizer.take_all(0, len(source.text))
    if normalizer.open_brackets:
        raise normalizer.never_closed()
    return normalizer.result()


def normalize_body(source: Source, start: int, end: int) -> tuple[str, OffsetMap]:
    """The instructions between the braces of a computation, likewise."""
    normalizer = _Normalizer(source)
    normalizer.state, normalizer.previous = _State.BODY, "{"
    normalizer.open_brackets = [start - 1]
    normalizer.take_all(start, end)
    if len(normalizer.open_brackets) > 1:
        raise normalizer.never_closed()
    return normalizer.result()


class _Normalizer:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.pieces: list[str] = []
        self.length = 0
        self.offsets = OffsetMap()
        self.state = _State.HEADER
        self.open_brackets: list[int] = []  # their offsets in the source
        self.previous = ""  # the last token that is neither blank nor comment
        self.before_previous = ""
        self.blank = False  # whether a blank or comment followed it

    def add_header(self) -> None:
        """Write the first line that the source does not have."""
        self._emit("HloModule module", 0)
        self.state, self.previous = _State.AFTER, "}"

    def take_all(self, position: int, end: int) -> None:
        """Write every symbol of a part of the source."""
        match_token, text = _TOKEN.match, self.text
        while position < end:
            match = match_token(text, position, end)
            assert match is not None, "the last alternative takes any character"
            position = self._take(match[0], position, match.end())
            if len(self.pieces) > _MAX_PIECES:
                problem = f"more than {_MAX_PIECES} symbols in a layout that XLA does not print"
                raise self._error(position - 1, problem, "put one instruction on each line")

    def result(self) -> tuple[str, OffsetMap]:
        """The text written so far, and its map to the original."""
        return "".join(self.pieces), self.offsets

    def never_closed(self, hint: str = "") -> ParseError:
        """The error for a bracket that is still open."""
        place = self.open_brackets[-1]
        return self._error(place, f"`{self.text[place]}` is never closed", hint)

    def _take(self, symbol: str, start: int, end: int) -> int:
        """Write one symbol; returns where the next begins."""
        if symbol.isspace() or (symbol[0] == "/" and len(symbol) > 1):
            self.blank = True
            return end
        if symbol in ('"', "'"):
            raise self._error(start, "string is never closed")
        if self.state is _State.HEADER and not self.open_brackets and symbol in TABLE_NAMES:
            return self._take_tables(start)
        if symbol in _CLOSER:
            self._take_opener(symbol, start)
        elif symbol in ("}", ")", "]"):
            self._take_closer(symbol, start)
        elif "\n" in symbol:  # a string over several lines
            self._take_word(symbol.replace("\n", "\\n"), start, end)
        else:
            self._take_word(symbol, start, end)
        self.before_previous, self.previous, self.blank = self.previous, symbol, False
        return end

    def _take_tables(self, start: int) -> int:
        match = TABLES.match(self.text, start)
        assert match is not None, "matches the empty text, too"
        self._emit("\n", start)
        self._emit("\n", start)  # on its own: the tables begin with it, and their offset is kept
        self._emit(match[0], start)
        self.state, self.previous = _State.AFTER, "}"
        return match.end()

    def _take_word(self, symbol: str, start: int, end: int) -> None:
        depth = len(self.open_brackets)
        if depth == 0 and self._begins_computation(symbol):
            self._emit("\n\n", start)
            self.state = _State.HEAD
        elif depth == 1 and self.state is _State.BODY and self._begins_instruction(symbol, end):
            self._emit("\n  ", start)
        elif depth == 1 and self.state is _State.BODY and symbol == "=":
            self._emit(" = " if self._is_definition() else "=", start)
            return
        elif symbol == "," or self._joins():
            pass
        elif self.blank or (self.previous == "," and depth <= 1) or self._is_opcode(symbol, end):
            self._emit(" ", start)
        self._emit(symbol, start)

    def _take_opener(self, symbol: str, start: int) -> None:
        opens_body = symbol == "{" and not self.open_brackets and self.state is _State.HEAD
        is_layout = symbol == "{" and self.previous == "]"
        if opens_body and not (is_layout and _LAYOUT_AHEAD.match(self.text, start + 1)):
            self._emit(" {", start)
            self.state = _State.BODY
        else:
            joins = is_layout or self._is_call(symbol) or self._joins()
            if self.blank and not joins:
                self._emit(" ", start)
            self._emit(symbol, start)
        self.open_brackets.append(start)
        if len(self.open_brackets) > _MAX_DEPTH:
            raise self._error(start, f"brackets nested deeper than {_MAX_DEPTH} levels")

    def _take_closer(self, symbol: str, start: int) -> None:
        if not self.open_brackets:
            raise self._error(start, f"unbalanced `{symbol}`")
        if _CLOSER[self.text[self.open_brackets[-1]]] != symbol:
            line, column = self.source.position(start)
            raise self.never_closed(f"`{symbol}` of line {line}, column {column} comes first")
        self.open_brackets.pop()
        if self.state is _State.BODY and not self.open_brackets:
            self._emit("\n", start)
            self.state = _State.AFTER
        self._emit(symbol, start)

    def _joins(self) -> bool:
        """Whether no blank follows what came before; blanks deep inside a value are its own."""
        is_attribute = self.previous == "=" and len(self.open_brackets) <= 1
        return is_attribute or self.previous in ("(", "{", "[")

    def _begins_computation(self, symbol: str) -> bool:
        if symbol in (",", "=") or self.previous in ("", ",", "=", "HloModule"):
            return False
        return self.state in (_State.HEADER, _State.AFTER)

    def _begins_instruction(self, symbol: str, end: int) -> bool:
        if symbol in (",", "=") or self.previous in (",", "=", "ROOT"):
            return False
        return symbol == "ROOT" or _EQUAL_AHEAD.match(self.text, end) is not None

    def _is_opcode(self, symbol: str, end: int) -> bool:
        """Whether a word that follows a shape is the opcode; `T` of `<=[4,2]T(1,0)` is not."""
        follows_shape = len(self.open_brackets) == 1 and self.previous in ("]", "}", ")")
        return follows_shape and symbol[0].islower() and self.text.startswith("(", end)

    def _is_definition(self) -> bool:
        """Whether an equal sign after `previous` defines an instruction."""
        return self.before_previous != ","

    def _is_call(self, symbol: str) -> bool:
        """Whether a parenthesis follows an opcode."""
        follows_word = self.previous not in ("", ",", "]", "}", ")")
        return symbol == "(" and self.state is _State.BODY and follows_word

    def _emit(self, piece: str, start: int) -> None:
        self.offsets.add(self.length, start)
        self.pieces.append(piece)
        self.length += len(piece)

    def _error(self, place: int, problem: str, hint: str = "") -> ParseError:
        return ParseError(self.source, Span(place, place + 1), problem, hint)
