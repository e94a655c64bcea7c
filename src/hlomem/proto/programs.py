"""The programs in a binary file, recognized by its bytes: proto, profile, cache or executable.

JAX's compilation cache holds zlib or zstd data (`jax/_src/compilation_cache.py`); executables of
TPU and GPU are record files (github.com/google/riegeli), possibly with Snappy
(github.com/google/snappy). No claimed size is believed, and nothing grows beyond `limit`.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.errors import InputError
from hlomem.base.source import visible
from hlomem.proto.find import FoundProgram, find_programs, has_plan
from hlomem.proto.sniff import ZSTD_MAGIC, is_compressed, is_zlib
from hlomem.proto.wire import WireError, read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator


_ADVICE = (
    "XLA's protos (.hlo.pb), profiles (.xplane.pb), entries of JAX's compilation cache and"
    " serialized executables are read"
)


def open_programs(data: bytes, name: str, limit: int) -> list[FoundProgram]:
    """The programs in a file's bytes, with a plan first; `InputError` where there is none."""
    try:
        found = _find(data, limit)
    except InputError as error:
        raise InputError(f"{visible(name)}: {error}") from error
    if not found:
        raise InputError(f"{visible(name)}: {_why_none(data, limit)}")
    return sorted(found, key=lambda program: program.assignment is None)


def _find(data: bytes, limit: int) -> list[FoundProgram]:
    if is_compressed(data):
        found = _find_in_records(open_cache_entry(data, limit).executable, limit)
        return found or _find_in_records(decompress(data, limit), limit)
    return _find_in_records(data, limit)


def _find_in_records(data: bytes, limit: int) -> list[FoundProgram]:
    return [found for record in iter_records(data, limit) for found in find_programs(record)]


def _why_none(data: bytes, limit: int) -> str:
    if any(has_plan(record) for record in iter_records(decompress(data, limit), limit)):
        return (
            "this is a memory plan (BufferAssignmentProto) without its program: give the"
            " HloProto that holds both, which --xla_dump_hlo_as_proto writes as .hlo.pb"
        )
    return f"no program is in this file, or it is cut off or damaged; {_ADVICE}"


RIEGELI_MAGIC = bytes.fromhex("83af70d10d884a3f")
"""The hash in the first block's header, the same in every record file."""
_MAX_HEADER = 1 << 16
"""How far into an executable its record file may begin; what is before describes it."""
_BLOCK, _BLOCK_HEADER, _CHUNK_HEADER = 1 << 16, 24, 40
_RECORDS_CHUNK = ord("r")
_PLAIN, _SNAPPY, _ZSTD = 0, ord("s"), ord("z")
_SECONDS_BYTES = 4
_MAX_NESTING = 4
_MAX_GROWTH = 100
"""How much larger than packed an executable may be; they are 2 to 10 times as large."""
_MIN_LIMIT = 64 << 20
"""Bytes that may be unpacked of any file, however small."""


class CacheEntry(NamedTuple):
    seconds: int
    """How long the compile took, in whole seconds."""
    executable: bytes


def decompress(data: bytes, limit: int) -> bytes:
    """The content of bytes zlib or zstd compressed; other bytes as they are."""
    limit = min(limit, max(_MIN_LIMIT, _MAX_GROWTH * len(data)))
    if data.startswith(ZSTD_MAGIC):
        return _unpack_zstd(data, limit)
    if not is_zlib(data):
        return data
    return _unpack_with(zlib.decompressobj(), zlib.error, "zlib", data, limit)


def _unpack_with(unpacker: Any, damage: type[Exception], by: str, data: bytes, limit: int) -> bytes:
    try:
        unpacked: bytes = unpacker.decompress(data, limit + 1)
    except damage as error:
        raise InputError(f"damaged {by} data: {error}") from error
    if len(unpacked) > limit:
        raise _too_large(limit)
    if not unpacker.eof:
        raise InputError(f"{by} data ends too early: the file is cut off")
    return unpacked


def _unpack_zstd(data: bytes, limit: int) -> bytes:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415
    except ImportError:
        return _unpack_zstandard(data, limit)
    return _unpack_with(zstd.ZstdDecompressor(), zstd.ZstdError, "zstd", data, limit)


def _unpack_zstandard(data: bytes, limit: int) -> bytes:
    """Before Python 3.14 a package does it."""
    try:
        import zstandard  # noqa: PLC0415 - only what was compressed by it needs it
    except ImportError as error:
        need = "Python 3.14 or the package zstandard: pip install zstandard"
        raise InputError(f"compressed with zstd: reading it needs {need}") from error
    try:
        promised: int = zstandard.get_frame_parameters(data).content_size
        with zstandard.ZstdDecompressor().stream_reader(data) as reader:
            unpacked: bytes = reader.read(limit + 1)
    except zstandard.ZstdError as error:
        raise InputError(f"damaged zstd data: {error}") from error
    if len(unpacked) > limit:
        raise _too_large(limit)
    if promised != zstandard.CONTENTSIZE_UNKNOWN and len(unpacked) < promised:
        raise InputError("zstd data ends too early: the file is cut off")
    return unpacked


def _too_large(limit: int) -> InputError:
    return InputError(
        f"unpacks to more than {limit} bytes: more than inputs may have (--max-input, limited_to),"
        f" or than {_MAX_GROWTH} times its size"
    )


def open_cache_entry(data: bytes, limit: int) -> CacheEntry:
    unpacked = decompress(data, limit)
    if len(unpacked) < _SECONDS_BYTES:
        raise InputError("not an entry of a compilation cache: it is empty")
    return CacheEntry(int.from_bytes(unpacked[:_SECONDS_BYTES]), unpacked[_SECONDS_BYTES:])


def iter_records(data: bytes, limit: int, nesting: int = _MAX_NESTING) -> Iterator[bytes]:
    """The innermost records of an executable: itself, where it is no record file."""
    start = data.find(RIEGELI_MAGIC, 0, _MAX_HEADER + len(RIEGELI_MAGIC))
    if start < 0 or not nesting:
        yield data
        return
    for record in _records_of_file(data[start:], limit):
        yield from iter_records(record, limit, nesting - 1)


def _records_of_file(data: bytes, limit: int) -> Iterator[bytes]:
    """The records of a record file, without the headers of its blocks and chunks."""
    chunks = b"".join(
        data[start + _BLOCK_HEADER : start + _BLOCK] for start in range(0, len(data), _BLOCK)
    )
    start = 0
    while start + _CHUNK_HEADER <= len(chunks):
        _, size, _, kind, _ = struct.unpack_from("<5Q", chunks, start)
        start += _CHUNK_HEADER
        if size > len(chunks) - start:
            raise InputError("a record file ends inside a chunk: the file is cut off")
        if kind & 0xFF == _RECORDS_CHUNK:
            yield from _records_of_chunk(chunks[start : start + size], limit)
        start += size


def _records_of_chunk(chunk: bytes, limit: int) -> Iterator[bytes]:
    """The records of a chunk: their sizes, then their bytes, one after another."""
    try:
        yield from _split_chunk(chunk, limit)
    except WireError as error:
        raise InputError(f"damaged record file: {error}") from error


def _split_chunk(chunk: bytes, limit: int) -> Iterator[bytes]:
    sizes_size, start = read_varint(chunk, 1, len(chunk))
    if sizes_size > len(chunk) - start:
        raise WireError("the sizes of records end after their chunk")
    packed = chunk[start : start + sizes_size], chunk[start + sizes_size :]
    sizes, body = (_unpack(part, chunk[0], limit) for part in packed)
    start = place = 0
    while place < len(sizes):
        size, place = read_varint(sizes, place, len(sizes))
        if size > len(body) - start:
            raise WireError("a record ends after its chunk")
        yield body[start : start + size]
        start += size


def _unpack(data: bytes, compression: int, limit: int) -> bytes:
    if compression == _PLAIN:
        return data
    if compression == _SNAPPY:
        return unpack_snappy(data, limit)
    if compression == _ZSTD:
        _, start = read_varint(data, 0, len(data))
        return decompress(data[start:], limit)
    raise InputError(f"records compressed by `{chr(compression)}` are not read: none was seen yet")


def unpack_snappy(data: bytes, limit: int) -> bytes:
    """The content of a Snappy chunk; Riegeli writes the unpacked size before it a second time."""
    _, start = read_varint(data, 0, len(data))
    size, start = read_varint(data, start, len(data))
    if size > limit:
        raise _too_large(limit)
    out = bytearray()
    while start < len(data):
        tag = data[start]
        start += 1
        if tag & 3 == 0:
            start = _copy_literal(data, start, tag >> 2, out)
        else:
            start = _copy_earlier(data, start, tag, out)
        if len(out) > size:
            raise WireError("more bytes than were announced")
    if len(out) != size:
        raise WireError("fewer bytes than were announced")
    return bytes(out)


_LONG_LITERAL = 60
"""From here on a literal's length follows, in one to four bytes."""


def _copy_literal(data: bytes, start: int, length: int, out: bytearray) -> int:
    if length >= _LONG_LITERAL:
        width = length - _LONG_LITERAL + 1
        length = int.from_bytes(data[start : start + width], "little")
        start += width
    end = start + length + 1
    if end > len(data):
        raise WireError("a literal ends after its data")
    out += data[start:end]
    return end


def _copy_earlier(data: bytes, start: int, tag: int, out: bytearray) -> int:
    """Bytes that came before, `offset` back; they may overlap what is being written."""
    width = {1: 1, 2: 2, 3: 4}[tag & 3]
    if start + width > len(data):
        raise WireError("a copy ends after its data")
    offset = int.from_bytes(data[start : start + width], "little")
    length = (tag >> 2) + 1
    if tag & 3 == 1:
        length = (tag >> 2 & 7) + 4
        offset |= tag >> 5 << 8
    if not 0 < offset <= len(out):
        raise WireError("a copy begins before its data")
    begin = len(out) - offset
    repeated = out[begin:] * (length // offset + 1) if length > offset else out[begin:]
    out += repeated[:length]
    return start + width
