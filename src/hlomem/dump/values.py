"""`*-buffer-assignment-values.txt`: totals and used values, read and written.

Mirrors BufferAssignment::ValuesToString of XLA's service/buffer_assignment.cc and
HloValue::ToString of service/hlo_value.cc. Up to jaxlib 0.9 the same text stands in the middle of
the one dump file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.dump.assignment import VALUE_PIECES, format_value
from hlomem.dump.grammar import INDEX, INT64, NAME, Form, format_index, parse_index
from hlomem.dump.numbers import human_bytes
from hlomem.dump.records import Position, Record, Use, UsedValue, Values
from hlomem.errors import ParseError
from hlomem.source import Span

if TYPE_CHECKING:
    import re

    from hlomem.source import Source

_TOTAL = Form(
    ("\n", "an empty line"),
    ("Total bytes used: ", "`Total bytes used:`"),
    (rf"({INT64}) ", "a number of bytes"),
    (r"\(([^()\n]*)\)\n", "the rounded size in parentheses"),
    ("\nUsed values:\n", "an empty line and `Used values:`"),
)
_POSITION = Form(
    (f"  ({NAME})", "two spaces and the name of an instruction"),
    (rf"(?: ({INDEX}))?\n", "a shape index, or the end of the line"),
)
_USE = Form(
    (f"  ({NAME})", "two spaces and the name of an instruction"),
    (", operand ", "`, operand`"),
    (f"({INT64})", "a number, the operand's"),
    (rf"(?: ({INDEX}))?\n", "a shape index, or the end of the line"),
)
_NO_USES = "  (none)\n"
_NOT_COMPUTED = " uses are not initialized yet.\n"


class Style(Record, frozen=True):
    """How this XLA lays a value out."""

    space_before_instruction: bool = True
    """`from instruction: %x`, not `from instruction:%x`."""
    newline_after_instruction: bool = True
    """The next value begins on a line of its own."""
    says_none: bool = True
    """A value without uses says `(none)`."""


_ON_ITS_LINE = (("(%[^\n]*)\n", "`%`, an instruction to the end of the line"),)
_BEFORE_THE_NEXT = (
    (r"(%[^\n<]*(?:<(?![^<\n]*>\n positions:\n)[^\n<]*)*)", "`%`, an instruction"),
    (r"(?=\Z|<)", "the next value, or the end of the values"),
)


def _value_form(style: Style) -> Form:
    uses = "((?:  [^\n]*+\n)++)" if style.says_none else "((?:  [^\n]*+\n)*+)"
    space = " " if style.space_before_instruction else ""
    return Form(
        *VALUE_PIECES,
        ("\n positions:\n", "a new line, then ` positions:`"),
        ("((?:  [^\n]*+\n)++)", "a position, after two spaces"),
        (f"(?: uses:\n{uses}|{_NOT_COMPUTED})", "` uses:` and the uses after two spaces"),
        (f" from instruction:{space}", f"` from instruction:{space}`"),
        *(_ON_ITS_LINE if style.newline_after_instruction else _BEFORE_THE_NEXT),
    )


def parse(source: Source, style: Style, start: int = 0, end: int | None = None) -> Values:
    """Totals and values in [start, end), laid out in `style`."""
    text = source.text
    end = len(text) if end is None else end
    total = _TOTAL.require(source, start, end)
    if total[2] != human_bytes(int(total[1])):
        expected = f"`{human_bytes(int(total[1]))}`, which {total[1]} bytes are"
        raise ParseError(source, Span(*total.span(2)), f"expected {expected}")
    form, place, values = _value_form(style), total.end(), []
    match_value = form.match
    while place < end:
        match = match_value(text, place, end)
        if match is None:
            raise form.explain(source, place, end)
        values.append(_parse_value(source, match, style))
        place = match.end()
    return Values(total_bytes=int(total[1]), values=tuple(values))


def _parse_value(source: Source, match: re.Match[str], style: Style) -> UsedValue:
    id_, name, index, phi, color, positions, uses, instruction = match.groups()
    # Most values are at one place, the instruction that defines them.
    is_at_home = positions == f"  {name}\n"
    return UsedValue(
        id=int(id_),
        name=name,
        index=parse_index(index) if index else None,
        is_phi=phi is not None,
        color=None if color is None else int(color),
        positions=(Position(name),) if is_at_home else _parse_positions(source, match),
        uses=_parse_uses(source, match, uses, style),
        instruction=instruction,
    )


def _parse_positions(source: Source, match: re.Match[str]) -> tuple[Position, ...]:
    found = _POSITION.findall(match[6])
    if len(found) != match[6].count("\n"):
        _POSITION.find_lines(source, *match.span(6))
    return tuple([Position(name, parse_index(index)) for name, index in found])


def _parse_uses(
    source: Source, match: re.Match[str], text: str | None, style: Style
) -> tuple[Use, ...] | None:
    if text is None:
        return None
    if text == _NO_USES and style.says_none:
        return ()
    found = _USE.findall(text)
    if len(found) != text.count("\n"):
        _USE.find_lines(source, *match.span(7))
    return tuple(
        [
            Use(name, int(operand), parse_index(index) if index else None)
            for name, operand, index in found
        ]
    )


def format(values: Values, style: Style) -> str:  # noqa: A001 - the opposite of parse
    """XLA's text in `style`."""
    total = values.total_bytes
    parts = [f"\nTotal bytes used: {total} ({human_bytes(total)})\n\nUsed values:\n"]
    before_instruction = " from instruction:" + (" " if style.space_before_instruction else "")
    newline = "\n" if style.newline_after_instruction else ""
    no_uses = " uses:\n" + (_NO_USES if style.says_none else "")
    for value in values.values:
        parts.append(f"{format_value(value)}\n positions:\n")
        for p in value.positions:
            where = "" if p.index is None else f" {format_index(p.index)}"
            parts.append(f"  {p.instruction}{where}\n")
        uses = value.uses
        if uses:
            parts.append(" uses:\n")
            for u in uses:
                where = "" if u.index is None else f" {format_index(u.index)}"
                parts.append(f"  {u.instruction}, operand {u.operand}{where}\n")
        else:
            parts.append(_NOT_COMPUTED if uses is None else no_uses)
        parts += (before_instruction, value.instruction, newline)
    return "".join(parts)
