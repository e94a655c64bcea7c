"""Text to spans: where the header, the stack frame tables and each computation's body lie.

In: the text of a module. Out: a `ModuleText` of offsets, and the rows of a body when asked. This is
the hot path of the parser: a body is found with two `str.find`, and its lines are taken apart by
one regular expression in one call. It knows the layout XLA prints (`HloModule::Print`,
`HloComputation::Print`): an instruction per line, braces of computations at the left margin. Any
other layout is first brought into this one by `hlomem.hlo.text.freeform`.

Where `_scanner.c` was built it does the same for ASCII text, and leaves to the patterns what is not
plainly as XLA prints it.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from hlomem.base.native import kernel
from hlomem.base.patterns import lazy_pattern, repeated
from hlomem.base.source import Span
from hlomem.hlo.opcodes import CALL_ATTRIBUTE_NAMES, PAYLOAD_OPCODES, Opcode, as_opcode
from hlomem.hlo.text.stack_frames import TABLE_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = r"[A-Za-z0-9_.\-]++"

_MODULE = lazy_pattern(rf"\s*+HloModule (?!ENTRY\s)({NAME})((?!:)[^\n]*+)(?:\n|\Z)", re.ASCII)
TABLES = lazy_pattern(repeated(rf"\s*+(?:(?:{'|'.join(TABLE_NAMES)})|[0-9]++ [^\n]*+)(?:\n|\Z)"))
# A line up to its first `//` outside strings.
_STRING = '"' + repeated(r'[^"\\\n]++|\\.') + '"'
_COMMENT = lazy_pattern(repeated(rf'[^"\n/]++|{_STRING}|/(?!/)') + "//")
_HEAD = rf"()(ENTRY )?%?({NAME}) [^\n]*+(?<=\{{)(?=\n)"
_FIRST_HEAD = lazy_pattern(rf"\n*+{_HEAD}", re.ASCII)
# The brace that closes a computation, and the first line of the next if there is one. Two of them
# close what a tool gave XLA in several lines, such as the metadata of a kernel.
_BOUNDARY = lazy_pattern(
    rf'\n\}}(?!\}})(?:, execution_thread="([^"\n]*+)")?( // [^\n]*+)?\s*+(?:{_HEAD})?', re.ASCII
)

# Atomic: the text before the first `(` after a shape and an opcode is tried once, so that a
# hostile line costs no more than its length.
SHAPE_AND_OPCODE = r"(?>(\([^\n]*?\)|[^\s(]\S*+) ([a-z][\w\-]*+)\()"

_INSTRUCTION = lazy_pattern(
    rf"^  (ROOT )?%?({NAME}) = {SHAPE_AND_OPCODE}"
    r"([^()\n]*+|[^\n]*?)\)"  # operands, or what a constant or parameter says
    r"(|, [A-Za-z_][\w\-]*+=[^\n]*+)$",  # attributes
    re.ASCII | re.MULTILINE,
)
_OUTLINE = lazy_pattern(rf"^  (?:ROOT )?%?{NAME} = {SHAPE_AND_OPCODE}", re.ASCII | re.MULTILINE)

_ENTRY_LAYOUT = "entry_computation_layout="
_ROW_NAME = lazy_pattern(rf"^  (?:ROOT )?%?({NAME}) = ", re.ASCII | re.MULTILINE)
_MAY_CALL = lazy_pattern(rf",\s*+(?:{'|'.join(CALL_ATTRIBUTE_NAMES)})\s*+=", re.ASCII)
_SECOND = lazy_pattern(r"[\w.\-] = \S++ [a-z][\w\-]*+\(")
# A computation instead of its name; the braces are searched first.
_OPENERS = tuple([f", {name}={{" for name in CALL_ATTRIBUTE_NAMES])
_INLINE = lazy_pattern(
    rf", (?:{'|'.join(CALL_ATTRIBUTE_NAMES)})=\{{[{{\s]*+(?:ROOT\s|%?{NAME}\s*+=)", re.ASCII
)
_TAIL_LENGTH = 1000
_SHORTEST_ROW = len("\n  a = b c()")

_computations: Callable[..., tuple[list[ComputationText], int] | None] | None = kernel(
    "hlomem.hlo.text._scanner", "computations"
)
_calling_rows: Callable[[str, int, int], list[tuple[Opcode, str]] | None] | None = kernel(
    "hlomem.hlo.text._scanner", "calling_rows"
)

InstructionRow = tuple[str, str, str, str, str, str]
"""`ROOT ` or nothing, name, shape, opcode, what stands in the parentheses, attributes."""


class RowPart(IntEnum):
    """The parts of a row, by their group in the pattern."""

    ROOT = 1
    NAME = 2
    SHAPE = 3
    OPCODE = 4
    OPERANDS = 5
    ATTRIBUTES = 6


class ComputationText(Struct, frozen=True, eq=False):
    """The location of a computation in the text, and the contents of its first and last line."""

    name: str
    is_entry: bool
    head_start: int
    body: tuple[int, int]
    """From the end of the opening brace to the end of the last instruction."""
    execution_thread: str | None
    has_name_after_brace: bool


class ModuleText(NamedTuple):
    """The locations of a module's parts in the text."""

    name: str
    header: Span  # the attributes after the name
    tables: Span
    computations: list[ComputationText]


def scan_module(text: str) -> ModuleText | None:
    """The parts of a module written as XLA prints it; None where it is written otherwise."""
    module = _MODULE.match(text)
    if module is None or has_comment(text, *module.span(2)):
        return None
    header = Span(*module.span(2))
    if text[header.end - 1] in "{,":
        from hlomem.hlo.text.long_lines import end_of_header  # noqa: PLC0415 - few texts need it

        header = Span(header.start, end_of_header(text, header.end))
    tables = TABLES.match(text, header.end)
    assert tables is not None, "matches the empty text, too"
    computations, end = scan_computations(text, tables.end())
    if not computations or end < _end_of_text(text):
        return None
    return ModuleText(module[1], header, Span(*tables.span()), computations)


def has_common_names(text: str, spans: ModuleText) -> bool:
    """Whether instructions of two computations have one name, as those XLA prints never have."""
    if says_entry_layout(text, spans.header) or len(spans.computations) == 1:
        return False
    names = _ROW_NAME.findall(text, spans.computations[0].body[0])
    return len(set(names)) != len(names)


def says_entry_layout(text: str, header: Span) -> bool:
    """Whether a header says the layout of the entry, as every one that XLA prints does."""
    return text.find(_ENTRY_LAYOUT, *header) >= 0


def scan_computations(text: str, position: int) -> tuple[list[ComputationText], int]:
    """The computations from `position` on, and the offset of the first other text."""
    if _computations is not None and text.isascii():
        found = _computations(text, position, ComputationText)
        if found is not None:
            return found
    return match_computations(text, position)


def match_computations(text: str, position: int) -> tuple[list[ComputationText], int]:
    """The same, by patterns, for any text."""
    computations: list[ComputationText] = []
    head = _FIRST_HEAD.match(text, position)
    if head is None:
        return computations, position
    _, entry, name = head.groups()
    head_start, body_start = head.start(1), head.end()
    for boundary in _BOUNDARY.finditer(text, body_start):
        thread, closing_name, _, next_entry, next_name = boundary.groups()
        body = (body_start, boundary.start())
        computations.append(
            ComputationText(
                name, entry is not None, head_start, body, thread, closing_name is not None
            )
        )
        if next_name is None:
            return computations, boundary.end()
        entry, name = next_entry, next_name
        head_start, body_start = boundary.start(3), boundary.end()
    return computations, head_start


def _end_of_text(text: str) -> int:
    """`len(text.rstrip())`, without a copy of a long text."""
    tail = text[-_TAIL_LENGTH:].rstrip()
    return max(0, len(text) - _TAIL_LENGTH) + len(tail) if tail else len(text.rstrip())


def count_lines(text: str, start: int, end: int) -> int:
    """The number of lines of a body, each of which is an instruction."""
    return text.count("\n", start, end)


def has_comment(text: str, start: int, end: int) -> bool:
    """Whether a part of a text, which begins and ends with lines, has a `//` comment."""
    position = text.find("//", start, end)
    while position >= 0:
        if _COMMENT.match(text, max(start, text.rfind("\n", start, position) + 1), end):
            return True
        line_end = text.find("\n", position, end)
        position = text.find("//", line_end, end) if line_end >= 0 else -1
    return False


def instruction_rows(text: str, start: int, end: int) -> list[InstructionRow] | None:
    """The instructions of a body, taken apart; None unless every line is one and no more."""
    count = count_lines(text, start, end)
    if count * _SHORTEST_ROW > end - start:
        return None  # most lines are empty; trying the pattern on each would take long
    rows: list[InstructionRow] = _INSTRUCTION.findall(text, start, end)
    if len(rows) != count or has_comment(text, start, end):
        return None
    return rows


def calling_rows(text: str, start: int, end: int) -> list[tuple[Opcode, str]] | None:
    """Opcode and attributes of lines that seem to call; None where one is no plain instruction."""
    if _calling_rows is not None and text.isascii():
        rows = _calling_rows(text, start, end)
        if rows is not None:
            return rows
    return match_calling_rows(text, start, end)


def match_calling_rows(text: str, start: int, end: int) -> list[tuple[Opcode, str]] | None:
    """The same, by patterns, for any text."""
    rows: list[tuple[Opcode, str]] = []
    position = start
    while match := _MAY_CALL.search(text, position, end):
        line_start = text.rfind("\n", position, match.start()) + 1
        position = text.find("\n", match.end(), end)
        position = end if position < 0 else position
        row = _opcode_and_attributes(text, line_start, position)
        if row is None:
            return None
        rows.append(row)
    return rows


def _opcode_and_attributes(text: str, start: int, end: int) -> tuple[Opcode, str] | None:
    """Opcode and attributes on one line; None where it does not plainly hold an instruction."""
    match = _INSTRUCTION.match(text, start, end)
    if match is None or has_comment(text, start, end):
        return None
    return as_opcode(match[4]), match[6]


def may_hide_instructions(rows: list[InstructionRow]) -> bool:
    """Whether a line seems to hold more than the one instruction it was taken for."""
    suspects = [row[3:] for row in rows if " = " in row[4] or " = " in row[5]]
    return bool(suspects) and any(
        (" = " in operands and opcode not in PAYLOAD_OPCODES)
        or (opcode in PAYLOAD_OPCODES and _SECOND.search(operands) is not None)
        or _hides_instructions(attributes)
        for opcode, operands, attributes in suspects
    )


def _hides_instructions(attributes: str) -> bool:
    """Whether attributes seem to hold an instruction, after them or in a computation in braces."""
    if any(opener in attributes for opener in _OPENERS) and _INLINE.search(attributes):
        return True
    if _SECOND.search(attributes) is None:
        return False
    from hlomem.hlo.text.long_lines import without_brackets  # noqa: PLC0415 - few texts need it

    return _SECOND.search(without_brackets(attributes)) is not None


def outline_rows(text: str, start: int, end: int) -> list[tuple[str, Opcode]]:
    """Shape and opcode of each instruction of a body."""
    return _OUTLINE.findall(text, start, end)


def row_part(text: str, start: int, end: int, row: int, part: RowPart | None) -> Span:
    """The span of a row or a part of it; an empty part is the position after the opcode."""
    matches = _INSTRUCTION.finditer(text, start, end)
    match = next(match for position, match in enumerate(matches) if position == row)
    if part is None:
        return Span(match.start() + 2, match.end())
    return Span(*match.span(part))


def first_bad_line(text: str, start: int, end: int) -> Span:
    """The first line of a body that is not an instruction, without its indentation."""
    line_start = line_end = start
    while line_end < end:
        line_start = line_end + 1
        line_end = text.find("\n", line_start, end)
        line_end = end if line_end < 0 else line_end
        if _INSTRUCTION.match(text, line_start, line_end) is None:
            break
    indentation = len(text[line_start:line_end]) - len(text[line_start:line_end].lstrip())
    return Span(line_start + indentation, line_end)
