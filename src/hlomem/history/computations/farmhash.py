"""FarmHash's `Fingerprint64` (google/farmhash, `farmhashna::Hash64`) of more than 64 bytes.

libtpu sorted computations by it; no computation is printed in fewer bytes.
"""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
_K0 = 0xC3A5C85C97CB3127
_K1 = 0xB492B66FBE98F273
_K2 = 0x9AE16A3B2F90404F
_SEED = 81
_BLOCK = 64
_WORDS = struct.Struct("<8Q")


def fingerprint64(data: bytes) -> int:
    """The fingerprint of more than 64 bytes."""
    assert len(data) > _BLOCK
    x = (_SEED * _K2 + int.from_bytes(data[:8], "little")) & _MASK
    y = (_SEED * _K1 + 113) & _MASK
    z = (_shift_mix((y * _K2 + 113) & _MASK) * _K2) & _MASK
    v = w = (0, 0)
    end = (len(data) - 1) // _BLOCK * _BLOCK
    for start in range(0, end, _BLOCK):
        x, y, z, v, w = _mix(_WORDS.unpack_from(data, start), x, y, z, v, w, _K1, 1)
    multiplier = (_K1 + ((z & 0xFF) << 1)) & _MASK
    first = (w[0] + ((len(data) - 1) & (_BLOCK - 1))) & _MASK
    v = ((v[0] + first) & _MASK, v[1])
    w = ((first + v[0]) & _MASK, w[1])
    last = _WORDS.unpack_from(data, len(data) - _BLOCK)
    x, y, z, v, w = _mix(last, x, y, z, v, w, multiplier, 9)
    return _hash_pair(
        (_hash_pair(v[0], w[0], multiplier) + _shift_mix(y) * _K0 + z) & _MASK,
        (_hash_pair(v[1], w[1], multiplier) + x) & _MASK,
        multiplier,
    )


_Pair = tuple[int, int]


def _mix(
    words: tuple[int, ...],
    x: int,
    y: int,
    z: int,
    v: _Pair,
    w: _Pair,
    multiplier: int,
    weight: int,
) -> tuple[int, int, int, _Pair, _Pair]:
    """One round over 64 bytes; x and z change places in it."""
    x = _rotate(x + y + v[0] + words[1], 37) * multiplier & _MASK
    y = _rotate(y + v[1] + words[6], 42) * multiplier & _MASK
    x ^= w[1] * weight & _MASK
    y = (y + v[0] * weight + words[5]) & _MASK
    z = _rotate(z + w[0], 33) * multiplier & _MASK
    v = _weak_hash(words[:4], v[1] * multiplier, x + w[0])
    w = _weak_hash(words[4:], z + w[1], y + words[2])
    return z, y, x, v, w


def _weak_hash(words: tuple[int, ...], a: int, b: int) -> _Pair:
    a += words[0]
    b = _rotate(b + a + words[3], 21)
    c = a
    a += words[1] + words[2]
    b += _rotate(a, 44)
    return (a + words[3]) & _MASK, (b + c) & _MASK


def _hash_pair(u: int, v: int, multiplier: int) -> int:
    a = (u ^ v) * multiplier & _MASK
    a ^= a >> 47
    b = (v ^ a) * multiplier & _MASK
    b ^= b >> 47
    return b * multiplier & _MASK


def _shift_mix(value: int) -> int:
    return value ^ (value >> 47)


def _rotate(value: int, count: int) -> int:
    value &= _MASK
    return ((value >> count) | (value << (64 - count))) & _MASK
