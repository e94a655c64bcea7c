"""The tables of files, functions, locations and frames."""

from __future__ import annotations

import pytest

from hlomem.base.errors import ParseError
from hlomem.hlo import format_module, parse

TABLES = """
FileNames
1 "/a/\\303\\251.py"
2 "b.py"

FunctionNames
1 "main"
2 "f.<locals>.g"

FileLocations
1 {file_name_id=1 function_name_id=1 line=5 end_line=6 column=2 end_column=9}
2 {file_name_id=2 function_name_id=2 line=7 end_line=7 column=1 end_column=3}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=2 parent_frame_id=4}

"""


def module_text(frame: int, tables: str = TABLES) -> str:
    return f"""\
HloModule m
{tables}
ENTRY %c (p: f32[]) -> f32[] {{
  ROOT %p = f32[] parameter(0), metadata={{op_name="p" stack_frame_id={frame}}}
}}

"""


def test_frames_innermost_first() -> None:
    inner, outer = parse(module_text(2)).entry.root.stack_frames
    assert (inner.file_name, inner.function_name, inner.line) == ("b.py", "f.<locals>.g", 7)
    assert (outer.file_name, outer.line, outer.end_line) == ("/a/é.py", 5, 6)


def test_a_circle_of_parents_ends() -> None:
    frames = parse(module_text(3)).entry.root.stack_frames
    assert [frame.line for frame in frames] == [7]


def test_unknown_frames_are_no_frames() -> None:
    assert parse(module_text(99)).entry.root.stack_frames == []


def test_tables_are_printed_back() -> None:
    assert format_module(parse(module_text(2))) == module_text(2)


def test_bad_rows_are_errors_with_a_place() -> None:
    text = module_text(1, TABLES.replace('2 "b.py"', '2 "b.py'))
    with pytest.raises(ParseError) as caught:
        parse(text).entry.root.stack_frames  # noqa: B018
    assert (caught.value.line, caught.value.problem) == (5, "not a row of a stack frame table")


def test_a_row_that_is_there_twice_is_an_error_with_a_place() -> None:
    text = module_text(1, TABLES.replace('2 "b.py"', '1 "b.py"'))
    with pytest.raises(ParseError, match="row 1 is in no table or there twice") as caught:
        parse(text).entry.root.stack_frames  # noqa: B018
    assert caught.value.line == 5


@pytest.mark.parametrize(("tables", "are_given"), [(TABLES, True), ("", False), ("\n\n", False)])
def test_a_module_says_whether_it_has_tables(tables: str, are_given: bool) -> None:
    module = parse(module_text(1, tables))
    assert module.stack_frame_tables.are_given == are_given
    assert bool(module.stack_frame_tables.tables) == are_given
    assert module.stack_frame_tables.are_given == are_given
