"""The wire format is read as protobuf's own runtime writes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.proto.schema import message_types
from hlomem.proto.wire import BYTES, VARINT, WireError, iter_fields, read_varint
from tests.fuzz.proto_mutants import varint


@given(st.integers(0, 2**64 - 1))
def test_numbers_come_back(number: int) -> None:
    data = varint(number)
    assert read_varint(data, 0, len(data)) == (number, len(data))


@given(st.integers(0, 2**63 - 1), st.text(max_size=300), st.lists(st.integers(0, 9)))
def test_fields_are_where_the_runtime_writes_them(number: int, text: str, sizes: list[int]) -> None:
    location = message_types()["Location"](
        instruction_id=number, instruction_name=text, shape_index=sizes
    )
    data = location.SerializeToString()
    found = {field.number: field for field in iter_fields(data)}
    if number:
        assert (found[4].kind, found[4].value) == (VARINT, number)
    if text:
        assert found[2].kind == BYTES
        assert data[found[2].value : found[2].end] == text.encode()
    if sizes:
        assert list(data[found[3].value : found[3].end]) == sizes


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x80" * 20, "does not end"),
        (b"\x08", "does not end"),
        (b"\x00\x01", "number 0"),
        (b"\x0b", "wire type 3"),
        (b"\x0a\xff\xff\xff\xff\x0f", "ends after its message"),
        (b"\x09\x01", "ends after its message"),
    ],
)
def test_what_is_no_message_is_told(data: bytes, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        list(iter_fields(data))
