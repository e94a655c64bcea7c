"""`*-buffer-assignment.txt`: what is read, what is printed, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from hlomem.base.source import Source
from hlomem.dump.assignment import format as format_assignment
from hlomem.dump.assignment import parse
from hlomem.dump.records import (
    Assignment,
    UnknownAttribute,
)
from tests import plain

from .editing import Path, changed_lines, field_at, fields_in, parse_error, with_field

SAMPLE = """\
BufferAssignment:
allocation 0: size 64, page 0, parameter 1, shape |f32[2,8]| at ShapeIndex {1,0}, maybe-live-out:
 value: <3 p.1{1,0} @0> (size=64,offset=0): f32[2,8]{1,0}
allocation 1: size 256, color 1, page 2, future |a, b|, preallocated-temp:
 value: <7 while.5{1} (phi) @1> (size=128,offset=128): f32[32]{0}
 value: <8 copy.1 @1> (size=64,offset=-64): (s32[], f32[2])
 reused by buffers of a different color:
  value: <9 add.2 @2> (color=2)
  value: <10 t{} (phi) @2> (color=2)
allocation 2: size 4, page 0, constant:
allocation 3: size 8, page 0, output shape is |(f32[2], s32[])|, thread-local:
"""


def parse_text(text: str) -> Assignment:
    return parse(Source("d.txt", text))


def one(header: str, *lines: str) -> str:
    return "\n".join(["BufferAssignment:", header, *lines, ""])


def test_every_attribute_becomes_a_field() -> None:
    assert parse_text(SAMPLE) == Assignment(
        allocations=(
            plain.Allocation(
                index=0,
                size=64,
                page=0,
                parameter=plain.Parameter(number=1, shape="f32[2,8]", index=(1, 0)),
                maybe_live_out=True,
                values=(
                    plain.AssignedValue(
                        id=3, name="p.1", index=(1, 0), size=64, offset=0, shape="f32[2,8]{1,0}"
                    ),
                ),
            ),
            plain.Allocation(
                index=1,
                size=256,
                color=1,
                page=2,
                is_preallocated_temp=True,
                unknown=(UnknownAttribute(text="future |a, b|", position=2),),
                values=(
                    plain.AssignedValue(
                        id=7,
                        name="while.5",
                        index=(1,),
                        is_phi=True,
                        color=1,
                        size=128,
                        offset=128,
                        shape="f32[32]{0}",
                    ),
                    plain.AssignedValue(
                        id=8, name="copy.1", color=1, size=64, offset=-64, shape="(s32[], f32[2])"
                    ),
                ),
                reused_across_colors=(
                    plain.Value(id=9, name="add.2", color=2),
                    plain.Value(id=10, name="t", index=(), is_phi=True, color=2),
                ),
            ),
            plain.Allocation(index=2, size=4, page=0, is_constant=True),
            plain.Allocation(
                index=3, size=8, page=0, output_shape="(f32[2], s32[])", is_thread_local=True
            ),
        )
    )


def test_the_sample_is_printed_back() -> None:
    assert format_assignment(parse_text(SAMPLE)) == SAMPLE


TITLE, HEADER_0, VALUE_0, HEADER_1, VALUE_1, _, REUSE_TITLE, REUSED, REUSED_1, *REST = SAMPLE.split(
    "\n"
)
A, V = "allocations", "values"
R = "reused_across_colors"
CHANGES: list[tuple[Path, Any, str, str]] = [
    ((A, 0, "index"), 5, HEADER_0, HEADER_0.replace("allocation 0", "allocation 5")),
    ((A, 0, "size"), 2**63 - 1, HEADER_0, HEADER_0.replace("64,", "9223372036854775807,")),
    ((A, 0, "color"), 3, HEADER_0, HEADER_0.replace("page", "color 3, page")),
    ((A, 0, "page"), None, HEADER_0, HEADER_0.replace(", page 0", "")),
    ((A, 0, "page"), 4, HEADER_0, HEADER_0.replace("page 0", "page 4")),
    (
        (A, 0, "parameter"),
        None,
        HEADER_0,
        "allocation 0: size 64, page 0, maybe-live-out:",
    ),
    ((A, 0, "parameter", "number"), 7, HEADER_0, HEADER_0.replace("er 1", "er 7")),
    ((A, 0, "parameter", "shape"), "s8[]", HEADER_0, HEADER_0.replace("f32[2,8]", "s8[]")),
    ((A, 0, "parameter", "index"), (), HEADER_0, HEADER_0.replace("{1,0}", "{}")),
    (
        (A, 0, "output_shape"),
        "s8[]",
        HEADER_0,
        HEADER_0.replace(", maybe", ", output shape is |s8[]|, maybe"),
    ),
    ((A, 0, "is_constant"), True, HEADER_0, HEADER_0.replace("maybe", "constant, maybe")),
    ((A, 0, "is_thread_local"), True, HEADER_0, HEADER_0.replace("maybe", "thread-local, maybe")),
    ((A, 0, "maybe_live_out"), False, HEADER_0, HEADER_0.replace(", maybe-live-out", "")),
    (
        (A, 0, "is_preallocated_temp"),
        True,
        HEADER_0,
        HEADER_0.replace("out:", "out, preallocated-temp:"),
    ),
    ((A, 1, "unknown"), (), HEADER_1, HEADER_1.replace(", future |a, b|", "")),
    ((A, 1, "unknown", 0, "text"), "new", HEADER_1, HEADER_1.replace("future |a, b|", "new")),
    (
        (A, 1, "unknown", 0, "position"),
        0,
        HEADER_1,
        "allocation 1: size 256, future |a, b|, color 1, page 2, preallocated-temp:",
    ),
    ((A, 0, V, 0, "id"), 4, VALUE_0, VALUE_0.replace("<3", "<4")),
    ((A, 0, V, 0, "name"), "q", VALUE_0, VALUE_0.replace("p.1", "q")),
    ((A, 0, V, 0, "index"), None, VALUE_0, VALUE_0.replace("{1,0} @", " @")),
    ((A, 0, V, 0, "is_phi"), True, VALUE_0, VALUE_0.replace(" @", " (phi) @")),
    ((A, 0, V, 0, "color"), None, VALUE_0, VALUE_0.replace(" @0", "")),
    ((A, 0, V, 0, "size"), 65, VALUE_0, VALUE_0.replace("size=64", "size=65")),
    ((A, 0, V, 0, "offset"), -1, VALUE_0, VALUE_0.replace("offset=0", "offset=-1")),
    ((A, 0, V, 0, "shape"), "s8[]", VALUE_0, VALUE_0.replace(": f32[2,8]{1,0}", ": s8[]")),
    ((A, 1, V, 0, "is_phi"), False, VALUE_1, VALUE_1.replace(" (phi)", "")),
    ((A, 1, R, 0, "id"), 1, REUSED, REUSED.replace("<9", "<1")),
    ((A, 1, R, 0, "name"), "z", REUSED, REUSED.replace("add.2", "z")),
    ((A, 1, R, 0, "index"), (4,), REUSED, REUSED.replace(" @", "{4} @")),
    ((A, 1, R, 0, "is_phi"), True, REUSED, REUSED.replace(" @", " (phi) @")),
    ((A, 1, R, 0, "color"), 0, REUSED, REUSED.replace("2>", "0>").replace("=2", "=0")),
]


@pytest.mark.parametrize(("path", "value", "old", "new"), CHANGES)
def test_changing_a_field_changes_its_line_and_no_other(
    path: Path, value: Any, old: str, new: str
) -> None:
    assert new != old
    changed = format_assignment(with_field(parse_text(SAMPLE), path, value))
    assert changed_lines(SAMPLE, changed) == ([old], [new])
    assert parse_text(changed) == with_field(parse_text(SAMPLE), path, value)


def test_changing_a_list_adds_or_removes_its_lines() -> None:
    sample = parse_text(SAMPLE)
    without_values = with_field(sample, (A, 0, V), ())
    assert changed_lines(SAMPLE, format_assignment(without_values)) == ([VALUE_0], [])
    without_reuse = with_field(sample, (A, 1, R), None)
    assert changed_lines(SAMPLE, format_assignment(without_reuse)) == (
        [REUSE_TITLE, REUSED, REUSED_1],
        [],
    )
    empty_reuse = with_field(sample, (A, 1, R), ())
    assert changed_lines(SAMPLE, format_assignment(empty_reuse)) == ([REUSED, REUSED_1], [])
    assert parse_text(format_assignment(empty_reuse)) == empty_reuse
    none_left = with_field(sample, (A,), ())
    assert format_assignment(none_left) == "BufferAssignment:\n"


def test_every_field_of_every_record_is_among_the_changes() -> None:
    sample = parse_text(SAMPLE)
    covered = {field_at(sample, path) for path, *_ in CHANGES}
    lists = {("Assignment", A), ("Allocation", V), ("Allocation", R)}
    assert covered | lists == fields_in(sample)


def test_pages_are_left_out_where_the_xla_prints_none() -> None:
    text = format_assignment(parse_text(SAMPLE), pages=False)
    assert text == SAMPLE.replace(", page 0", "").replace(", page 2", "")


KNOWN = (
    "color 1",
    "page 0",
    "parameter 0, shape |f32[]| at ShapeIndex {}",
    "output shape is |f32[]|",
    "constant",
    "thread-local",
    "maybe-live-out",
    "preallocated-temp",
)


@pytest.mark.parametrize("position", range(len(KNOWN) + 1))
def test_an_unknown_attribute_is_kept_at_its_position(position: int) -> None:
    attributes = [*KNOWN[:position], "in-flight 3, shape |(a, b): c|", *KNOWN[position:]]
    text = one(f"allocation 0: size 1, {', '.join(attributes)}:")
    parsed = parse_text(text)
    assert parsed.allocations[0].unknown == (
        UnknownAttribute(text="in-flight 3", position=position),
        UnknownAttribute(text="shape |(a, b): c|", position=position),
    )
    assert parsed.allocations[0].is_preallocated_temp
    assert format_assignment(parsed) == text


@pytest.mark.parametrize(
    "unknown",
    [
        "constant-folded",
        "thread-locality 3",
        "maybe-live-outside",
        "page 0x10",
        "page 007",
        "color 0",
        "color 1.5",
        "parameter 0",
        "output shape is unknown",
        "a:b",
        "a,b",
        " two  spaces ",
        "×",
    ],
)
def test_an_attribute_that_only_resembles_a_known_one_is_kept(unknown: str) -> None:
    text = one(f"allocation 0: size 1, {unknown}:", " value: <1 a @0> (size=1,offset=0): s8[]")
    parsed = parse_text(text)
    assert [each.text for each in parsed.allocations[0].unknown] == [unknown]
    assert format_assignment(parsed) == text


@pytest.mark.parametrize("repeated", KNOWN)
def test_a_repeated_attribute_is_refused(repeated: str) -> None:
    header = f"allocation 0: size 1, {repeated}, {repeated}:"
    error = parse_error(parse, one(header))
    assert error.problem == "attribute is repeated or out of order"
    assert (error.line, error.column) == (2, header.rindex(f", {repeated}") + 3)


def test_attributes_out_of_order_are_refused() -> None:
    error = parse_error(parse, one("allocation 0: size 1, thread-local, constant:"))
    assert (error.line, error.column) == (2, 37)
    assert str(error) == (
        "d.txt:2:37: attribute is repeated or out of order\n"
        "2 | allocation 0: size 1, thread-local, constant:\n"
        "  |                                     ^^^^^^^^"
    )


def test_values_without_a_colour_are_read() -> None:
    text = one("allocation 0: size 1:", " value: <1 a{0} (phi)> (size=1,offset=0): s8[]")
    parsed = parse_text(text)
    assert parsed.allocations[0].values[0].color is None
    assert format_assignment(parsed) == text


@pytest.mark.parametrize("number", ["0", "-1", "9223372036854775807", "-9223372036854775807"])
def test_numbers_up_to_64_bits_are_read(number: str) -> None:
    text = one(
        f"allocation 0: size {number}:", f" value: <1 a @0> (size={number},offset={number}): s8[]"
    )
    allocation = parse_text(text).allocations[0]
    value = allocation.values[0]
    assert [value.size, value.offset, allocation.size] == [int(number)] * 3
    assert format_assignment(parse_text(text)) == text


TOO_BIG = "number does not fit 64 bits"
BAD_LINES = [
    ("allocation 0: size 9223372036854775808:", 20, TOO_BIG),
    ("allocation 0: size 18446744073709551616:", 20, TOO_BIG),
    ("allocation 9223372036854775808: size 1:", 12, TOO_BIG),
    ("allocation 0: size " + "9" * 5000 + ":", 20, TOO_BIG),
    ("allocation 0: size 007:", 20, "expected a number, the size in bytes, found `007`"),
    ("allocation 0: size -0:", 20, "expected a number, the size in bytes, found `-`"),
    ("allocation 0: size ٣:", 20, "expected a number, the size in bytes, found `٣`"),
    ("allocation 0: size 1KiB:", 21, "expected `, `, an attribute, or `:`"),
    ("allocation 0: size 1", 21, "found the end of the line"),
    ("allocation 0: size 1,:", 21, "expected `, `, an attribute, or `:`"),
    ("allocation 0: size 1, |open:", 21, "expected `, `, an attribute, or `:`"),
    ("allocation x: size 1:", 12, "expected a number and `: size`, found `x`"),
    ("allocate 0: size 1:", 1, "expected `allocation`, found `allocate`"),
    ("", 1, "expected `allocation`, found the end of the line"),
    (" value: <1 a @0> (size=1,offset=0): s8[]", 1, "expected `allocation`, found ` `"),
]


@pytest.mark.parametrize(("line", "column", "problem"), BAD_LINES)
def test_a_bad_header_is_refused_where_it_goes_wrong(line: str, column: int, problem: str) -> None:
    error = parse_error(parse, one(line))
    assert (error.line, error.column) == (2, column)
    assert problem in error.problem


BAD_VALUES = [
    (" value: 1 a @0> (size=1,offset=0): s8[]", 9, "expected `<`, the start of a value"),
    (" value: <x a @0> (size=1,offset=0): s8[]", 10, "expected a number, the value's id"),
    (" value: <9223372036854775808 a @0> (size=1,offset=0): s8[]", 10, TOO_BIG),
    (" value: <01 a @0> (size=1,offset=0): s8[]", 10, "expected a number, the value's id"),
    (" value: <1 {} @0> (size=1,offset=0): s8[]", 12, "expected the name of an instruction"),
    (" value: <1 a{01} @0> (size=1,offset=0): s8[]", 13, "expected `>`, the end of a value"),
    (" value: <1 a{x} @0> (size=1,offset=0): s8[]", 13, "expected `>`, the end of a value"),
    (" value: <1 a{1,} @0> (size=1,offset=0): s8[]", 13, "expected `>`, the end of a value"),
    (" value: <1 a @x> (size=1,offset=0): s8[]", 13, "expected `>`, the end of a value"),
    (" value: <1 a @0> (size=1;offset=0): s8[]", 24, "expected a number, then `,offset=`"),
    (" value: <1 a @0> (size=1234567890123456789;offset=0): s8[]", 24, "expected a number"),
    (" value: <1 a @0> (size=9223372036854775808,offset=0): s8[]", 24, TOO_BIG),
    (" value: <1 a @0> (size=1,offset=9223372036854775808): s8[]", 33, TOO_BIG),
    (" value: <1 a @0> (size=1,offset=0)", 33, "expected a number, then `): `"),
    (" value: <1 a @0> (size=1,offset=0): ", 37, "expected a shape, found the end of the line"),
    (" value: junk value: <1 a @0> (size=1,offset=0): s8[]", 9, "the start of a value"),
]


@pytest.mark.parametrize(("line", "column", "problem"), BAD_VALUES)
def test_a_bad_value_is_refused_where_it_goes_wrong(line: str, column: int, problem: str) -> None:
    good = " value: <1 a @0> (size=1,offset=0): s8[]"
    error = parse_error(parse, one("allocation 0: size 1:", good, line, good))
    assert (error.line, error.column) == (4, column)
    assert problem in error.problem


@pytest.mark.parametrize(
    ("line", "column", "problem"),
    [
        ("  value: <9 a @2> (color=1)", 26, "the value itself has another colour"),
        ("  value: <9 a> (color=1)", 23, "the value itself has another colour"),
        ("  value: <9 a @2> (size=1)", 18, "expected `(color=` and a number"),
        ("  value:<9 a @2> (color=2)", 1, "expected `  value:`"),
    ],
)
def test_a_bad_reuse_list_is_refused(line: str, column: int, problem: str) -> None:
    text = one("allocation 0: size 1:", " reused by buffers of a different color:", line)
    error = parse_error(parse, text)
    assert (error.line, error.column) == (4, column)
    assert problem in error.problem


def test_a_text_that_does_not_begin_as_allocations_is_refused() -> None:
    error = parse_error(parse, "HloModule m\n")
    assert (error.line, error.column) == (1, 1)
    assert error.problem == "expected `BufferAssignment:`, found `HloModule`"


def test_names_may_hold_any_character_that_is_no_delimiter() -> None:
    name = "é×\"/\\[]@=;*#~\x07é%ß-._+!?$&^`'"
    text = one("allocation 0: size 1:", f" value: <1 {name} @0> (size=1,offset=0): s8[]")
    assert parse_text(text).allocations[0].values[0].name == name
    assert format_assignment(parse_text(text)) == text
