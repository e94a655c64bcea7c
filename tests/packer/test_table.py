"""Tables as MiniMalloc writes them, and tables that are wrong."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.base.errors import ParseError
from hlomem.base.source import Source
from hlomem.packer.buffers import Buffer
from hlomem.packer.table import read_problem, write_solution


def _read(text: str) -> list[Buffer]:
    return read_problem(Source("p.csv", text)).buffers


def test_columns_may_stand_in_any_order() -> None:
    text = "size,note,upper,id,alignment,lower\r\n4,x,3,b1,8,0\r\n\r\n5,,9,b2,,-3\r\n"
    assert _read(text) == [Buffer("b1", 0, 3, 4, 8), Buffer("b2", -3, 9, 5)]


def test_the_solution_is_the_table_with_a_column_more() -> None:
    text = '\ufeffid,lower,upper,size,note\n"b,1",0,3,4,"say ""hi"""\nb2,3,9,4,\n'
    problem = read_problem(Source("p.csv", text))
    assert [buffer.id for buffer in problem.buffers] == ["b,1", "b2"]
    lines = list(write_solution(problem, {"b,1": 7, "b2": 0}))
    assert lines == [
        "id,lower,upper,size,note,offset\n",
        '"b,1",0,3,4,"say ""hi""",7\n',
        "b2,3,9,4,,0\n",
    ]


def test_an_old_offset_is_replaced() -> None:
    text = "id,offset,lower,upper,size\na,5,0,1,1\n"
    problem = read_problem(Source("p.csv", text))
    assert "".join(write_solution(problem, {"a": 0})) == "id,offset,lower,upper,size\na,0,0,1,1\n"


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("", "1:1", "no table here"),
        ("id,lower,upper\n", "1:1", "no column `size`"),
        ("1,2,3,4\n", "1:1", "no columns `id`, `lower`, `upper`, `size`"),
        ("id,lower,upper,size,size\n", "1:21", "a second column `size`"),
        ("id,lower,upper,size\na,0,1\n", "2:1", "3 fields, but the header has 4"),
        ("id,lower,upper,size\na,0,1,4k\n", "2:7", "`4k` is not a number for `size`"),
        ("id,lower,upper,size\na,0,1,4\na,0,1,4\n", "3:1", "the id `a` is also that of line 2"),
        ("id,lower,upper,size\na,1,1,4\n", "2:1", "lives from 1 to before 1, which is never"),
        ("id,lower,upper,size\na,0,1,-4\n", "2:1", "its size is -4, below 0"),
        ('id,lower,upper,size\n"a,0,1,4\n', "2:1", "an unclosed quote"),
        ('id,lower,upper,size\n"a"b,0,1,4\n', "2:1", "an unclosed quote, or text next to"),
    ],
)
def test_errors_name_the_place(text: str, place: str, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        _read(text)
    assert str(caught.value).startswith(f"p.csv:{place}: {problem}")


@given(st.text(alphabet='id,lowerups z\n\r"01-\ufeff', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ParseError):
        assert all(isinstance(buffer, Buffer) for buffer in _read(f"id,lower,upper,size\n{text}"))
