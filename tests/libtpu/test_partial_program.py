"""Messages of libtpu's phases, read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.libtpu.partial_program import (
    PartialProgram,
    PhaseError,
    encode_field,
    find_named,
    read_program,
    with_number,
    write_program,
)
from hlomem.proto.programs import decompress
from hlomem.proto.sniff import ZSTD_MAGIC
from hlomem.proto.wire import WireError

TEXT = st.text(max_size=20)


@given(st.binary(), TEXT, TEXT, st.lists(TEXT.filter(bool), max_size=3), TEXT, TEXT)
def test_a_program_is_read_as_it_was_written(
    body: bytes, format_: str, producer: str, consumers: list[str], version: str, name: str
) -> None:
    program = PartialProgram(
        body=body,
        format=format_,
        producer=producer,
        consumers=tuple(consumers),
        version=version,
        name=name,
    )
    assert read_program(write_program(program)) == program


@pytest.mark.parametrize("size", [0, 1, 1 << 17, (1 << 17) + 1, 300_000])
def test_other_content_is_framed_so_that_zstd_reads_it(size: int) -> None:
    pytest.importorskip("zstandard")
    content = bytes(number % 251 for number in range(size))
    packed = PartialProgram(body=ZSTD_MAGIC).with_content(content)
    assert packed.body.startswith(ZSTD_MAGIC)
    assert decompress(packed.body, 1 << 30) == packed.content == content
    assert PartialProgram(body=b"plain").with_content(content).body == content


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(PhaseError, match="no program: a field ends after its message"):
        read_program(b"\x0a\x05ab")


def test_a_number_is_changed_where_it_is_and_nothing_else() -> None:
    def message(number: int) -> bytes:
        inner = encode_field(511, 7) + encode_field(512, number) + encode_field(513, b"x")
        any_ = encode_field(1, b"type") + encode_field(2, inner)
        return encode_field(1, any_) + encode_field(3, b"rest")

    assert with_number(message(1), (1, 2, 512), 0) == message(0)
    assert with_number(message(1), (1, 2, 99), 0) == message(1)
    with pytest.raises(WireError, match="field 513 is not what it was"):
        with_number(message(1), (1, 2, 513), 0)


def test_a_name_has_to_be_there_once() -> None:
    programs = [PartialProgram(body=b"1", name="a"), PartialProgram(body=b"2", name="a")]
    with pytest.raises(PhaseError, match="2 programs `a` instead of one"):
        find_named(programs, "a")
    with pytest.raises(PhaseError, match="0 programs `b`"):
        find_named(programs, "b")
