"""`*-buffer-assignment-values.txt` (BufferAssignment::ValuesToString, HloValue::ToString)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.base.errors import ParseError
from hlomem.base.native import kernel
from hlomem.base.source import Source, Span
from hlomem.dump.assignment import VALUE_PIECES, format_value
from hlomem.dump.grammar import (
    INDEX,
    INT64,
    NAME,
    Form,
    format_index,
    human_bytes,
    parse_color,
    parse_index,
    parse_value_id,
)
from hlomem.dump.records import Position, Record, ShapeIndex, Use, UsedValue, Values

if TYPE_CHECKING:
    import re
    from collections.abc import Callable


_read_natively: Callable[..., tuple[list[tuple[Any, ...]], int]] | None = kernel(
    "hlomem.dump._lines", "read_values"
)
"""Reads values up to the first that differs from XLA's format."""
TOTAL_PIECES = (
    (rf"({INT64}) ", "a number of bytes"),
    (r"\(([^()\n]*)\)\n", "the rounded size in parentheses"),
)
_TOTAL = Form(
    ("\n", "an empty line"),
    ("Total bytes used: ", "`Total bytes used:`"),
    *TOTAL_PIECES,
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
    space_before_instruction: bool = True
    newline_after_instruction: bool = True
    says_none: bool = True


# An attribute may be JSON on several lines. No look-ahead in the repeated group: Python 3.11.2 does
# not backtrack past one that fails there.
_ON_ITS_LINE = (('(%[^\n]*+(?:\n["}][^\n]*+)*+)\n', "`%`, an instruction to the end of the line"),)
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
    """Totals and values in [start, end), printed in `style`."""
    text = source.text
    end = len(text) if end is None else end
    header = _TOTAL.require(source, start, end)
    total = parse_total(source, header, 1)
    form, cursor, values = _value_form(style), header.end(), []
    match_value = form.match
    is_native = _read_natively is not None and style.newline_after_instruction and text.isascii()
    while cursor < end:
        if is_native:
            read, cursor = _parse_natively(text, cursor, end, style)
            values += read
            if cursor == end:
                break
        match = match_value(text, cursor, end)
        if match is None:
            raise form.explain(source, cursor, end)
        values.append(_parse_value(source, match, style))
        cursor = match.end()
    return Values(total_bytes=total, values=tuple(values))


def parse_total(source: Source, match: re.Match[str], group: int) -> int:
    """The number of `TOTAL_PIECES`; its rounded form must be XLA's."""
    total = int(match[group])
    if match[group + 1] != human_bytes(total):
        problem = f"expected `{human_bytes(total)}`, which {total} bytes are"
        raise ParseError(source, Span(*match.span(group + 1)), problem)
    return total


def _parse_natively(text: str, start: int, end: int, style: Style) -> tuple[list[UsedValue], int]:
    """The values from `start` up to the first unusual one, and its offset."""
    assert _read_natively is not None
    space, none = style.space_before_instruction, style.says_none
    rows, cursor = _read_natively(text, start, end, space, none, Position, Use)
    return [
        UsedValue(
            id=id_,
            name=name,
            index=index,
            is_phi=is_phi,
            color=color,
            positions=positions,
            uses=uses,
            instruction=instruction,
        )
        for id_, name, index, is_phi, color, positions, uses, instruction in rows
    ], cursor


def _parse_value(source: Source, match: re.Match[str], style: Style) -> UsedValue:
    id_, name, index, phi, color, positions, uses, instruction = match.groups()
    # Most values have one position, the defining instruction.
    is_at_home = positions == f"  {name}\n"
    return UsedValue(
        id=parse_value_id(id_),
        name=name,
        index=parse_index(index) if index else None,
        is_phi=phi is not None,
        color=None if color is None else parse_color(color),
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
    layout = Layout(style)
    parts = [format_total(values.total_bytes)]
    for value in values.values:
        positions = [
            format_position(position.instruction, format_part_index(position.index))
            for position in value.positions
        ]
        uses = [
            format_use(use.instruction, use.operand, format_part_index(use.index))
            for use in value.uses or ()
        ]
        used = _NOT_COMPUTED if value.uses is None else layout.format_uses("".join(uses))
        name = format_value(value)
        parts.append(layout.format_value(name, "".join(positions), used, value.instruction))
    return "".join(parts)


class Layout:
    def __init__(self, style: Style) -> None:
        self._no_uses = " uses:\n" + (_NO_USES if style.says_none else "")
        self._from = " from instruction:" + (" " if style.space_before_instruction else "")
        self._end = "\n" if style.newline_after_instruction else ""

    def format_value(self, name: str, positions: str, uses: str, instruction: str) -> str:
        """A value from its name, the lines of its positions, and those of its uses."""
        return f"{name}\n positions:\n{positions}{uses}{self._from}{instruction}{self._end}"

    def format_uses(self, uses: str) -> str:
        """The lines of a value's uses, with their title."""
        return f" uses:\n{uses}" if uses else self._no_uses


def format_total(total: int) -> str:
    return f"\nTotal bytes used: {total} ({human_bytes(total)})\n\nUsed values:\n"


def format_position(name: str, part: str) -> str:
    """The line of a position; `part` is a `format_part_index`."""
    return f"  {name}{part}\n"


def format_use(name: str, operand: int, part: str) -> str:
    """The line of a use; `part` is a `format_part_index`."""
    return f"  {name}, operand {operand}{part}\n"


def format_part_index(index: ShapeIndex | None) -> str:
    """A value's index in its instruction's result; empty if that is not a tuple."""
    return "" if index is None else f" {format_index(index)}"
