"""Containers give back what was packed, and refuse what grows or breaks off."""

from __future__ import annotations

import sys
import zlib
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlomem.base.errors import InputError
from hlomem.proto.programs import (
    RIEGELI_MAGIC,
    decompress,
    iter_records,
    open_cache_entry,
    unpack_snappy,
)
from hlomem.proto.sniff import ZSTD_MAGIC
from hlomem.proto.wire import WireError
from tests.fuzz.hostile_protos import record_file
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


def test_zstd_without_a_decoder_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "compression", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InputError, match=r"needs Python 3.14 or .*: pip install zstandard$"):
        decompress(ZSTD_MAGIC + b"...", LIMIT)


def _python_314(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for `compression.zstd`, whose decoder is used as zlib's is: this one is zlib's."""

    class ZstdDecompressor:
        def __init__(self) -> None:
            self._zlib = zlib.decompressobj()

        @property
        def eof(self) -> bool:
            return self._zlib.eof

        def decompress(self, data: bytes, max_length: int) -> bytes:
            return self._zlib.decompress(data.removeprefix(ZSTD_MAGIC), max_length)

    package, module = ModuleType("compression"), ModuleType("compression.zstd")
    module.ZstdDecompressor = ZstdDecompressor  # type: ignore[attr-defined]
    module.ZstdError = zlib.error  # type: ignore[attr-defined]
    package.zstd = module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "compression", package)
    monkeypatch.setitem(sys.modules, "compression.zstd", module)


def test_zstd_is_unpacked_by_python_itself_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    _python_314(monkeypatch)
    whole = ZSTD_MAGIC + zlib.compress(bytes(1000))
    assert decompress(whole, LIMIT) == bytes(1000)
    for data, limit, problem in (
        (whole, 999, "unpacks to more than 999 bytes"),
        (whole[:-3], LIMIT, "cut off"),
        (ZSTD_MAGIC + b"\0\0\0", LIMIT, "damaged zstd data"),
    ):
        with pytest.raises(InputError, match=problem):
            decompress(data, limit)


def test_zstd_is_unpacked_by_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    zstandard = pytest.importorskip("zstandard")
    monkeypatch.setitem(sys.modules, "compression", None)
    whole = zstandard.ZstdCompressor().compress(bytes(range(256)) * 40)
    assert decompress(whole, LIMIT) == bytes(range(256)) * 40
    for data, limit, problem in (
        (whole, 999, "unpacks to more than 999 bytes"),
        (whole[:-30], LIMIT, "cut off"),
        (whole[:9] + b"\xff" * 40, LIMIT, "damaged zstd data"),
    ):
        with pytest.raises(InputError, match=problem):
            decompress(data, limit)


def test_zlib_that_is_damaged_is_refused() -> None:
    with pytest.raises(InputError, match="damaged zlib data"):
        decompress(zlib.compress(b"")[:2] + b"\xff" * 20, LIMIT)


def _chunk(sizes: bytes, body: bytes) -> bytes:
    return varint(len(sizes)) + sizes + body


def test_records_of_a_file_are_split_by_their_sizes() -> None:
    data = record_file(b"\0", _chunk(b"\x02\x03", b"abcde"))
    assert list(iter_records(data, LIMIT)) == [b"ab", b"cde"]


def test_records_may_be_record_files_but_not_without_end() -> None:
    data = b"ab"
    for _ in range(6):
        data = record_file(b"\0", _chunk(varint(len(data)), data))
    [record] = iter_records(data, LIMIT)
    assert RIEGELI_MAGIC in record


@pytest.mark.parametrize(
    ("compression", "chunk", "problem"),
    [
        (b"\0", b"\x7f", "the sizes of records end after their chunk"),
        (b"\0", _chunk(b"\x7f", b"abc"), "a record ends after its chunk"),
        (b"\0", b"\x80", "a number does not end"),
        (b"b", _chunk(b"\x03", b"abc"), "compressed by `b` are not read"),
        (b"s", _chunk(b"\x02\x02\xff", b""), "a copy ends after its data"),
        (b"z", _chunk(b"\x02" + ZSTD_MAGIC, b""), "damaged zstd data|pip install|cut off"),
    ],
)
def test_a_damaged_chunk_is_refused(compression: bytes, chunk: bytes, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        list(iter_records(record_file(compression, chunk), LIMIT))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x01\x01\x04ab", "more bytes than were announced"),
        (b"\x05\x05\x00a", "fewer bytes than were announced"),
        (b"\x05\x05\x00a\x02", "a copy ends after its data"),
        (b"\x05\x05\x00a\x02\x09\x00", "a copy begins before its data"),
        (b"\x09\x09\xf0", "a literal ends after its data"),
    ],
)
def test_damaged_snappy_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        unpack_snappy(data, LIMIT)


def test_short_copies_of_snappy_may_reach_far_back() -> None:
    start = b"\x0c\x0c\x14abcdef"
    assert unpack_snappy(start + bytes([(2 << 2) | 1, 6]), LIMIT) == b"abcdefabcdef"
