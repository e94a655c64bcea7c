"""Containers give back what was packed, and refuse what grows or breaks off."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.base.errors import InputError
from hlomem.proto.containers import (
    RIEGELI_MAGIC,
    decompress,
    iter_records,
    open_cache_entry,
    unpack_snappy,
)
from hlomem.proto.wire import WireError
from tests.fuzz.proto_mutants import varint
from tests.proto.samples import PROTOS

LIMIT = 1 << 30

PIECES = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=300),
        st.tuples(st.integers(1, 70000), st.integers(1, 64)),
    ),
    max_size=20,
)
"""What Snappy writes: bytes as they are, or (how far back, how many)."""


def packed(pieces: list[bytes | tuple[int, int]]) -> tuple[bytes, bytes]:
    """Snappy's bytes, in the form Riegeli has them, and what they stand for."""
    data, whole = b"", b""
    for piece in pieces:
        if isinstance(piece, bytes):
            data += bytes([61 << 2]) + (len(piece) - 1).to_bytes(2, "little") + piece
            whole += piece
        elif whole:
            offset, length = min(piece[0], len(whole)), piece[1]
            data += bytes([(length - 1) << 2 | 3]) + offset.to_bytes(4, "little")
            for _ in range(length):
                whole += whole[-offset : len(whole) - offset + 1]
    return varint(len(whole)) * 2 + data, whole


@given(PIECES)
def test_snappy_gives_back_what_was_packed(pieces: list[bytes | tuple[int, int]]) -> None:
    data, whole = packed(pieces)
    assert unpack_snappy(data, LIMIT) == whole


@given(PIECES, st.data())
def test_snappy_refuses_what_breaks_off(
    pieces: list[bytes | tuple[int, int]], data: st.DataObject
) -> None:
    whole, unpacked = packed(pieces)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    if unpacked:
        with pytest.raises(WireError):
            unpack_snappy(cut, LIMIT)


def test_snappy_does_not_believe_a_size_beyond_the_limit() -> None:
    with pytest.raises(InputError, match="unpacks to more than 1000 bytes"):
        unpack_snappy(varint(1 << 40) * 2 + b"\0a", 1000)


def test_zlib_is_unpacked_to_the_limit_and_no_further() -> None:
    bomb = zlib.compress(b"\0" * 1_000_000)
    assert len(decompress(bomb, LIMIT)) == 1_000_000
    with pytest.raises(InputError, match="unpacks to more than 999999 bytes"):
        decompress(bomb, 999_999)


def test_a_bomb_is_refused_whatever_the_limit() -> None:
    bomb = zlib.compress(b"\0" * (65 << 20))
    with pytest.raises(InputError, match="100 times its size"):
        decompress(bomb, 1 << 40)


@given(st.integers(3, 100))
def test_zlib_that_breaks_off_is_refused(size: int) -> None:
    whole = zlib.compress(bytes(range(256)))
    with pytest.raises(InputError, match="cut off"):
        decompress(whole[:size], LIMIT)


def test_an_entry_has_seconds_before_its_executable() -> None:
    entry = open_cache_entry(zlib.compress((7).to_bytes(4) + b"executable"), LIMIT)
    assert entry == (7, b"executable")
    with pytest.raises(InputError, match="empty"):
        open_cache_entry(zlib.compress(b""), LIMIT)


def test_what_is_no_record_file_is_one_record() -> None:
    assert list(iter_records(b"abc", LIMIT)) == [b"abc"]


@pytest.mark.parametrize("name", ["tpu_donated", "gpu_tanh_dot"])
def test_executables_of_accelerators_are_record_files(name: str) -> None:
    data = (PROTOS / name / "executable.bin").read_bytes()
    assert RIEGELI_MAGIC in data
    records = list(iter_records(data, LIMIT))
    assert any(f"jit_{name[4:]}".encode() in record for record in records)
    with pytest.raises(InputError, match="cut off"):
        list(iter_records(data[: len(data) // 2], LIMIT))
