"""Texts in layouts that XLA does not print."""

from __future__ import annotations

import pytest

from hlomem.base.errors import ParseError
from hlomem.hlo import parse

TABLES = """\
FileNames
1 "a.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 column=5}

StackFrames
1 {file_location_id=1 parent_frame_id=0}
"""
ODD = f"""\
HloModule m /* not a layout of XLA's */

{TABLES}
ENTRY e {{ ROOT p = f32[] parameter(0), metadata={{stack_frame_id=1}} }}
"""


def test_tables_stay_as_they_are() -> None:
    [frame] = parse(ODD).entry.root.stack_frames
    assert (frame.file_name, frame.function_name, frame.line) == ("a.py", "f", 3)


def test_an_error_behind_tables_has_its_own_place() -> None:
    with pytest.raises(ParseError, match="is not defined above") as caught:
        parse(ODD.replace("parameter(0)", "negate(q)"))
    assert (caught.value.line, caught.value.column) == (15, 33)


def test_a_string_that_never_closes_is_pointed_at() -> None:
    text = 'HloModule m /**/ ENTRY e { ROOT c = f32[] custom-call(), custom_call_target="x }'
    with pytest.raises(ParseError, match="string is never closed") as caught:
        parse(text)
    assert caught.value.column == text.index('"') + 1


def test_there_is_a_limit_to_what_is_brought_into_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    parse(ODD)
    monkeypatch.setattr("hlomem.hlo.text.normalizer._MAX_PIECES", 8)
    with pytest.raises(ParseError, match="more than 8 symbols in a layout that XLA does not print"):
        parse(ODD)
