"""The wire format of protocol buffers, read field by field without a schema.

Strings, bytes and messages are ranges of the given bytes. `WireError` tells other bytes from a
message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_MAX_VARINT_SHIFT = 63
_MAX_FIELD_NUMBER = (1 << 29) - 1


class WireError(ValueError):
    """Bytes that are not a message."""


class Field(NamedTuple):
    """One field: a number, or the half-open range of bytes it takes."""

    number: int
    kind: int
    value: int
    """The number of a varint; for all others where the bytes begin."""
    end: int
    """One past the last byte."""


def read_varint(data: bytes, start: int, end: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the position after it."""
    result = shift = 0
    while start < end:
        byte = data[start]
        start += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, start
        shift += 7
        if shift > _MAX_VARINT_SHIFT:
            break
    raise WireError("a number does not end")


def encode_varint(number: int) -> bytes:
    """The bytes of a number that is not negative."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def iter_fields(data: bytes, start: int = 0, end: int | None = None) -> Iterator[Field]:
    """The fields of the message in a range of bytes, in their order."""
    stop = len(data) if end is None else end
    while start < stop:
        tag, start = read_varint(data, start, stop)
        number, kind = tag >> 3, tag & 7
        if not 0 < number <= _MAX_FIELD_NUMBER:
            raise WireError(f"no field has number {number}")
        if kind == VARINT:
            value, start = read_varint(data, start, stop)
            yield Field(number, kind, value, start)
            continue
        if kind == BYTES:
            size, start = read_varint(data, start, stop)
        elif kind in _FIXED_BYTES:
            size = _FIXED_BYTES[kind]
        else:
            raise WireError(f"no field has wire type {kind}")
        if size > stop - start:
            raise WireError("a field ends after its message")
        yield Field(number, kind, start, start + size)
        start += size
