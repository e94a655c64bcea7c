"""Headers with tables and instructions with long configurations, which take several lines.

In: a text, and where a header or a body is. Out: spans. XLA prints configurations and strings of
tools as they were given, line breaks included; everything else is on one line. Mirrors
`HloModule::Print` (`origin_recovery_table`, `debug_attributes`) and
`HloInstruction::PrintWithCanonicalNameMap` (`backend_config`).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from hlomem.base.patterns import lazy_pattern, repeated
from hlomem.base.source import Span
from hlomem.hlo.text.scanner import NAME, SHAPE_AND_OPCODE, has_comment

if TYPE_CHECKING:
    from hlomem.hlo.text.scanner import InstructionRow, RowPart

_IN_QUOTES = repeated(r'[^"\\]++|\\.')
_MARK = lazy_pattern(rf'"{_IN_QUOTES}"|[{{}}\n]', re.DOTALL)
_ROW_START = lazy_pattern(rf"^  (?:ROOT )?%?{NAME} = (?=[a-z(])", re.ASCII | re.MULTILINE)
_INSTRUCTION = lazy_pattern(
    rf"  (ROOT )?%?({NAME}) = {SHAPE_AND_OPCODE}"
    r"([^()\n]*+|[^\n]*?)\)"
    r"(|, [A-Za-z_][\w\-]*+=(?s:.*))",
    re.ASCII,
)


def end_of_header(text: str, position: int) -> int:
    """The end of a header of several lines, with tables of origins or debug attributes."""
    depth = text.count("{", 0, position) - text.count("}", 0, position)
    for match in _MARK.finditer(text, position):
        mark = match.group()
        depth += (mark == "{") - (mark == "}")
        is_end = mark == "\n" and depth == 0
        if is_end and text[match.start() - 1] != "," and text[match.end() : match.end() + 1] != ",":
            return match.start()
    return position


def long_rows(text: str, start: int, end: int) -> list[Span] | None:
    """The spans of a body's instructions, some of which go on in the next line, as XLA prints it.

    None unless all of the body is instructions, and no line break is outside brackets.
    """
    starts = [match.start() for match in _ROW_START.finditer(text, start, end)]
    if not starts or text[start : starts[0]] != "\n" or has_comment(text, start, end):
        return None
    spans: list[Span] = []
    for begin, stop in pairwise([*starts, end + 1]):
        first = spans.pop().start if spans and not _is_closed(text, spans[-1]) else begin
        spans.append(Span(first, stop - 1))
    is_whole = all(_INSTRUCTION.fullmatch(text, *span) and _is_closed(text, span) for span in spans)
    return spans if is_whole else None


def _is_closed(text: str, span: Span) -> bool:
    """Whether brackets and strings are closed, and line breaks are only inside them."""
    depth = 0
    for match in _MARK.finditer(text, *span):
        mark = match.group()
        depth += (mark == "{") - (mark == "}")
        if mark == "\n" and depth == 0:
            return False
    return depth == 0


def cut_row(text: str, span: Span) -> InstructionRow:
    """An instruction of `long_rows`, taken apart."""
    match = _INSTRUCTION.fullmatch(text, *span)
    assert match is not None, "one of those that were found"
    mark, name, shape, opcode, inner, attributes = match.groups("")
    return mark, name, shape, opcode, inner, attributes


def long_row_part(text: str, span: Span, part: RowPart | None) -> Span:
    """The span of an instruction of `long_rows`, or of a part of it."""
    match = _INSTRUCTION.fullmatch(text, *span)
    assert match is not None, "one of those that were found"
    return Span(match.start() + 2, match.end()) if part is None else Span(*match.span(part))


def without_brackets(attributes: str) -> str:
    """Attributes without what is in braces or strings, where an instruction is only quoted."""
    pieces: list[str] = []
    position = depth = 0
    for match in _MARK.finditer(attributes):
        mark = match.group()
        if depth == 0:
            pieces.append(attributes[position : match.start()])
        depth += (mark == "{") - (mark == "}")
        position = match.end()
    return "".join([*pieces, attributes[position:] if depth <= 0 else ""])
