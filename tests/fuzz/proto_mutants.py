"""Damaged protos, profiles, cache entries and executables: one small, seeded change at a time.

Bytes are changed anywhere, and fields where a message has them: numbers that cannot be, fields that
stand twice or in another's place, messages inside themselves.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from hlomem.proto.wire import BYTES, VARINT, Field, WireError, iter_fields

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

_NUMBERS = (0, 1, 2, 99, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
_DEPTH = 8


def varint(number: int) -> bytes:
    """A number of seven bits a byte."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def cut(random: Random, data: bytes) -> bytes:
    """The beginning only."""
    return data[: random.randrange(len(data))]


def change_byte(random: Random, data: bytes) -> bytes:
    """Another byte somewhere."""
    place = random.randrange(len(data))
    return data[:place] + bytes([random.randrange(256)]) + data[place + 1 :]


def drop(random: Random, data: bytes) -> bytes:
    """Some bytes less."""
    place = random.randrange(len(data))
    return data[:place] + data[place + random.randrange(1, 40) :]


def repeat(random: Random, data: bytes) -> bytes:
    """Some bytes twice."""
    place = random.randrange(len(data))
    end = place + random.randrange(1, 400)
    return data[:end] + data[place:end] + data[end:]


def insert(random: Random, data: bytes) -> bytes:
    """Noise."""
    place = random.randrange(len(data))
    return data[:place] + random.randbytes(random.randrange(1, 30)) + data[place:]


def change_field(random: Random, data: bytes) -> bytes:
    """A field of some message inside: another number, text, or the message around it in it."""
    return _changed(random, data, _DEPTH)


def _changed(random: Random, data: bytes, depth: int) -> bytes:
    """A message with one field changed, at any depth; all lengths around it are right again."""
    try:
        fields = list(iter_fields(data))
    except WireError:
        return change_byte(random, data) if data else b"\x08\x01"
    if not fields:
        return data
    number = random.randrange(len(fields))
    field = fields[number]
    pieces = [_encoded(data, other) for other in fields]
    if field.kind == VARINT:
        pieces[number] = varint(field.number << 3) + varint(random.choice(_NUMBERS))
    elif field.kind == BYTES:
        inner = data[field.value : field.end]
        changed = _changed(random, inner, depth - 1) if depth and random.random() < 0.9 else data
        pieces[number] = varint(field.number << 3 | BYTES) + varint(len(changed)) + changed
    if random.random() < 0.1:
        pieces.insert(number, random.choice(pieces))
    return b"".join(pieces)


def _encoded(data: bytes, field: Field) -> bytes:
    tag = varint(field.number << 3 | field.kind)
    if field.kind == VARINT:
        return tag + varint(field.value)
    body = data[field.value : field.end]
    return tag + (varint(len(body)) if field.kind == BYTES else b"") + body


def inside_zlib(random: Random, data: bytes) -> bytes:
    """The same damage inside of compressed bytes; elsewhere what `change_field` does."""
    try:
        whole = zlib.decompress(data)
    except zlib.error:
        return change_field(random, data)
    kinds = [cut, change_byte, drop, insert, change_field]
    return zlib.compress(random.choice(kinds)(random, whole))


KINDS: list[Callable[[Random, bytes], bytes]] = [
    cut,
    change_byte,
    drop,
    repeat,
    insert,
    change_field,
    change_field,
    change_field,
    inside_zlib,
]
