"""Totals and used values, in each layout XLA has had."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from hlomem.base.source import Source
from hlomem.dump.records import Position, Use, Values
from hlomem.dump.values import Style, parse
from hlomem.dump.values import format as format_values
from tests import plain

from .editing import Path, changed_lines, field_at, fields_in, parse_error, with_field

NEWEST = Style()
SAMPLE = """\

Total bytes used: 1536 (1.5KiB)

Used values:
<6 while.5{1} (phi) @1>
 positions:
  while.5 {1}
  arg.1 {1,0}
 uses:
  add.3, operand 0
  while.5, operand 0 {1}
 from instruction: %while.5 = (s32[], f32[2]{0}) while(%t), condition=%c, body=%b
<7 args_0_.1 @0>
 positions:
  args_0_.1
 uses:
  (none)
 from instruction: %args_0_.1 = f32[2]{0} parameter(0), metadata={op_name="<lambda>"}
<8 t{}>
 positions:
  t {}
 uses are not initialized yet.
 from instruction: %t = () tuple()
"""
LINES = SAMPLE.split("\n")


def parse_text(text: str, style: Style = NEWEST) -> Values:
    return parse(Source("d.txt", text), style)


def test_every_line_becomes_a_field() -> None:
    assert parse_text(SAMPLE) == Values(
        total_bytes=1536,
        values=(
            plain.UsedValue(
                id=6,
                name="while.5",
                index=(1,),
                is_phi=True,
                color=1,
                positions=(
                    Position(instruction="while.5", index=(1,)),
                    Position(instruction="arg.1", index=(1, 0)),
                ),
                uses=(
                    Use(instruction="add.3", operand=0),
                    Use(instruction="while.5", operand=0, index=(1,)),
                ),
                instruction="%while.5 = (s32[], f32[2]{0}) while(%t), condition=%c, body=%b",
            ),
            plain.UsedValue(
                id=7,
                name="args_0_.1",
                positions=(Position(instruction="args_0_.1"),),
                uses=(),
                instruction='%args_0_.1 = f32[2]{0} parameter(0), metadata={op_name="<lambda>"}',
            ),
            plain.UsedValue(
                id=8,
                name="t",
                index=(),
                color=None,
                positions=(Position(instruction="t", index=()),),
                uses=None,
                instruction="%t = () tuple()",
            ),
        ),
    )


@pytest.mark.parametrize(
    ("style", "text"),
    [
        (NEWEST, SAMPLE),
        (Style(says_none=False), SAMPLE.replace("  (none)\n", "")),
        (Style(space_before_instruction=False), SAMPLE.replace("instruction: ", "instruction:")),
        (
            Style(newline_after_instruction=False),
            SAMPLE.replace("body=%b\n", "body=%b").replace('"}\n', '"}').removesuffix("\n"),
        ),
    ],
)
def test_each_layout_is_read_to_the_same_records_and_printed_back(style: Style, text: str) -> None:
    assert parse_text(text, style) == parse_text(SAMPLE)
    assert format_values(parse_text(SAMPLE), style) == text


@pytest.mark.parametrize("switches", list(product([True, False], repeat=3)))
def test_every_combination_of_layouts_is_read_back(switches: tuple[bool, bool, bool]) -> None:
    style = Style(*switches)
    records = parse_text(SAMPLE)
    assert parse_text(format_values(records, style), style) == records


V = "values"
CHANGES: list[tuple[Path, Any, int, str]] = [
    (("total_bytes",), 2048, 1, "Total bytes used: 2048 (2.0KiB)"),
    ((V, 0, "id"), 0, 4, "<0 while.5{1} (phi) @1>"),
    ((V, 0, "name"), "x", 4, "<6 x{1} (phi) @1>"),
    ((V, 0, "index"), None, 4, "<6 while.5 (phi) @1>"),
    ((V, 0, "is_phi"), False, 4, "<6 while.5{1} @1>"),
    ((V, 0, "color"), None, 4, "<6 while.5{1} (phi)>"),
    ((V, 0, "color"), 12, 4, "<6 while.5{1} (phi) @12>"),
    ((V, 0, "positions", 0, "instruction"), "y", 6, "  y {1}"),
    ((V, 0, "positions", 1, "index"), (), 7, "  arg.1 {}"),
    ((V, 0, "positions", 1, "index"), None, 7, "  arg.1"),
    ((V, 0, "uses", 0, "instruction"), "z", 9, "  z, operand 0"),
    ((V, 0, "uses", 0, "operand"), 5, 9, "  add.3, operand 5"),
    ((V, 0, "uses", 1, "index"), None, 10, "  while.5, operand 0"),
    ((V, 2, "instruction"), "%t", 22, " from instruction: %t"),
]


@pytest.mark.parametrize(("path", "value", "number", "line"), CHANGES)
def test_changing_a_field_changes_its_line_and_no_other(
    path: Path, value: Any, number: int, line: str
) -> None:
    changed = format_values(with_field(parse_text(SAMPLE), path, value), NEWEST)
    assert changed_lines(SAMPLE, changed) == ([LINES[number]], [line])


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ((V,), (), LINES[4:23], []),
        ((V, 0, "positions"), (), LINES[6:8], []),
        ((V, 0, "uses"), (), LINES[9:11], ["  (none)"]),
        ((V, 0, "uses"), None, LINES[8:11], [" uses are not initialized yet."]),
        ((V, 2, "uses"), (), LINES[21:22], [" uses:", "  (none)"]),
    ],
)
def test_changing_a_list_changes_its_lines_and_no_other(
    path: Path, value: Any, old: list[str], new: list[str]
) -> None:
    changed = format_values(with_field(parse_text(SAMPLE), path, value), NEWEST)
    assert changed_lines(SAMPLE, changed) == (old, new)


def test_every_field_of_every_record_is_among_the_changes() -> None:
    sample = parse_text(SAMPLE)
    covered = {field_at(sample, path) for path, *_ in CHANGES}
    lists = {("Values", V), ("UsedValue", "positions"), ("UsedValue", "uses")}
    assert covered | lists == fields_in(sample)


def test_no_values_at_all_are_read() -> None:
    text = "\nTotal bytes used: 0 (0B)\n\nUsed values:\n"
    assert parse_text(text) == Values(total_bytes=0)
    assert format_values(Values(total_bytes=0), NEWEST) == text


def swap(number: int, line: str | None) -> str:
    """The sample with another line, or none, in place of one (counted from 0)."""
    return "\n".join([*LINES[:number], *([] if line is None else [line]), *LINES[number + 1 :]])


BAD = [
    (1, "Total bytes used: 1536 (1.4KiB)", 2, 25, "expected `1.5KiB`, which 1536 bytes are"),
    (1, "Total bytes used: 01536 (1.5KiB)", 2, 19, "expected a number of bytes, found `01536`"),
    (1, "Total bytes used: 9223372036854775808 (8.00EiB)", 2, 19, "does not fit 64 bits"),
    (1, "Total bytes: 1536 (1.5KiB)", 2, 1, "expected `Total bytes used:`"),
    (2, None, 3, 1, "expected an empty line and `Used values:`, found `Used`"),
    (4, "<6 while.5{1} (fie) @1>", 5, 14, "expected `>`, the end of a value"),
    (4, "6 while.5{1} (phi) @1>", 5, 1, "expected `<`, the start of a value, found `6`"),
    (5, " position:", 5, 24, "expected a new line, then ` positions:`"),
    (6, "  while.5{1}", 7, 10, "expected a shape index, or the end of the line, found `{`"),
    (6, "  while.5 {1", 7, 10, "expected a shape index, or the end of the line"),
    (6, "  while.5 {01}", 7, 10, "expected a shape index, or the end of the line"),
    (6, "  junk  while.5 {1}", 7, 7, "expected a shape index, or the end of the line"),
    (6, "   while.5 {1}", 7, 1, "expected two spaces and the name of an instruction"),
    (6, "while.5 {1}", 7, 1, "expected a position, after two spaces, found `while`"),
    (8, " use:", 9, 1, "expected ` uses:` and the uses after two spaces"),
    (9, "  add.3, operand x", 10, 18, "expected a number, the operand's, found `x`"),
    (9, "  add.3, operand 00", 10, 18, "expected a number, the operand's, found `00`"),
    (9, "  add.3 operand 0", 10, 8, "expected `, operand`"),
    (9, "  (none)", 10, 1, "expected two spaces and the name of an instruction"),
    (9, "  a  add.3, operand 0", 10, 4, "expected `, operand`"),
    (11, " from instruction %while.5", 12, 1, "expected ` from instruction: `"),
    (11, " from instruction: while.5", 12, 20, "expected `%`, an instruction"),
    (16, None, 16, 1, "expected ` uses:` and the uses after two spaces"),
    (23, "<9", 24, 2, "expected a number, the value's id, found `9`"),
    (23, "<", 24, 2, "the text ends here; expected a number, the value's id"),
]


@pytest.mark.parametrize(("number", "line", "row", "column", "problem"), BAD)
def test_a_bad_line_is_refused_where_it_goes_wrong(
    number: int, line: str | None, row: int, column: int, problem: str
) -> None:
    text = swap(number, line)
    error = parse_error(lambda source: parse(source, NEWEST), text)
    assert problem in error.problem
    assert (error.line, error.column) == (row, column)


def test_an_instruction_that_runs_into_the_next_value_ends_before_it() -> None:
    style = Style(newline_after_instruction=False)
    text = SAMPLE.replace("body=%b\n", 'body="a<b>" <<').replace('"}\n', '"}')[:-1]
    parsed = parse_text(text, style)
    assert [value.id for value in parsed.values] == [6, 7, 8]
    assert parsed.values[0].instruction.endswith('body="a<b>" <<')
    assert format_values(parsed, style) == text


def test_values_cut_off_without_line_ends_are_refused_at_the_end_of_the_instruction() -> None:
    style = Style(newline_after_instruction=False)
    text = SAMPLE.replace("body=%b\n", "body=%b").replace('"}\n', '"}')
    error = parse_error(lambda source: parse(source, style), text)
    assert error.problem == (
        "expected the next value, or the end of the values, found the end of the line"
    )
    assert (error.line, error.column) == (21, 35)
