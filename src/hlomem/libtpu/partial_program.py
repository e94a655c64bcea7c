"""Inputs and results of libtpu's phases: `PjRtPartialProgramProto` of openxla, read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hlomem.base.errors import HlomemError
from hlomem.proto.programs import decompress
from hlomem.proto.sniff import ZSTD_MAGIC
from hlomem.proto.wire import BYTES, VARINT, WireError, encode_varint, iter_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_CONTENT, _FORMAT, _PRODUCER, _CONSUMER, _VERSION, _NAME = 1, 2, 3, 4, 5, 6
_LIMIT = 1 << 31
"""Bytes that may be unpacked of one program."""
_MAX_BLOCK = 1 << 17
"""Of a zstd frame."""
_RAW_FRAME = b"\xa0"
"""The descriptor of a frame of one segment whose size follows in four bytes."""


class PhaseError(HlomemError):
    """A phase that refused its input, or returned something unknown."""


class PartialProgram(Struct, frozen=True, kw_only=True):
    """A result of one phase, and which phases read it."""

    body: bytes
    """As it came, mostly compressed."""
    format: str = ""
    producer: str = ""
    consumers: tuple[str, ...] = ()
    version: str = ""
    name: str = ""

    @property
    def content(self) -> bytes:
        """The body, unpacked."""
        return decompress(self.body, _LIMIT)

    def with_content(self, content: bytes) -> PartialProgram:
        """The same with other content, compressed in form where it was."""
        is_packed = self.body.startswith(ZSTD_MAGIC)
        return replace(self, body=_framed(content) if is_packed else content)


def read_program(data: bytes) -> PartialProgram:
    """A message of libtpu."""
    found: dict[int, list[bytes]] = {}
    try:
        for field in iter_fields(data):
            if field.kind == BYTES:
                found.setdefault(field.number, []).append(data[field.value : field.end])
    except WireError as error:
        raise PhaseError(f"libtpu returned something that is no program: {error}") from error

    def text(number: int) -> str:
        return found.get(number, [b""])[-1].decode(errors="replace")

    return PartialProgram(
        body=found.get(_CONTENT, [b""])[-1],
        format=text(_FORMAT),
        producer=text(_PRODUCER),
        consumers=tuple(one.decode(errors="replace") for one in found.get(_CONSUMER, [])),
        version=text(_VERSION),
        name=text(_NAME),
    )


def write_program(program: PartialProgram) -> bytes:
    """The message libtpu reads."""
    texts = [(_FORMAT, program.format), (_PRODUCER, program.producer)]
    texts += [(_CONSUMER, consumer) for consumer in program.consumers]
    texts += [(_VERSION, program.version), (_NAME, program.name)]
    fields = [(number, text.encode()) for number, text in texts if text]
    return b"".join(encode_field(*one) for one in [(_CONTENT, program.body), *fields])


def encode_field(number: int, value: bytes | int) -> bytes:
    """A field of a message: a number, or bytes with their length."""
    if isinstance(value, int):
        return encode_varint(number << 3 | VARINT) + encode_varint(value)
    return encode_varint(number << 3 | BYTES) + encode_varint(len(value)) + value


def with_number(data: bytes, path: Sequence[int], value: int) -> bytes:
    """A message whose number at a path of fields is another where it is set; the rest is kept."""
    head, *rest = path
    pieces = []
    start = 0
    for field in iter_fields(data):
        end = field.end
        if field.number != head:
            pieces.append(data[start:end])
        elif not rest and field.kind == VARINT:
            pieces.append(encode_field(head, value))
        elif rest and field.kind == BYTES:
            inner = with_number(data[field.value : end], rest, value)
            pieces.append(encode_field(head, inner))
        else:
            raise WireError(f"field {head} is not what it was")
        start = end
    return b"".join(pieces)


def find_named(programs: Iterable[PartialProgram], name: str) -> PartialProgram:
    """The only program of a name."""
    found = [program for program in programs if program.name == name]
    if len(found) != 1:
        raise PhaseError(f"libtpu returned {len(found)} programs `{name}` instead of one")
    return found[0]


def _framed(content: bytes) -> bytes:
    """A zstd frame of blocks that are not compressed (RFC 8878, 3.1.1)."""
    blocks = [content[at : at + _MAX_BLOCK] for at in range(0, len(content), _MAX_BLOCK)] or [b""]
    pieces = [ZSTD_MAGIC, _RAW_FRAME, len(content).to_bytes(4, "little")]
    for number, block in enumerate(blocks, 1):
        is_last = number == len(blocks)
        pieces += [(len(block) << 3 | is_last).to_bytes(3, "little"), block]
    return b"".join(pieces)
