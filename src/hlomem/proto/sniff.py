"""Text told from other files by the first bytes; all a text needs of `hlomem.proto`."""

from __future__ import annotations

ZSTD_MAGIC = bytes.fromhex("28b52ffd")
_ZLIB_FIRST_BYTE = 0x78
_SNIFFED = 4096
_OF_NO_TEXT = frozenset({*range(9), *range(0x0E, 0x1B)})
"""Control characters that texts do not have, and that nearly every message begins with."""


def is_binary(data: bytes) -> bool:
    """Whether bytes are no text: compressed, or with control characters at their beginning."""
    return is_compressed(data) or not _OF_NO_TEXT.isdisjoint(data[:_SNIFFED])


def is_compressed(data: bytes) -> bool:
    return data.startswith(ZSTD_MAGIC) or is_zlib(data)


def is_zlib(data: bytes) -> bool:
    return data[:1] == bytes([_ZLIB_FIRST_BYTE]) and int.from_bytes(data[:2]) % 31 == 0
