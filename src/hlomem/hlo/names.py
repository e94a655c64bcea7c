"""The number at the end of a name.

`NameUniquer` (`service/name_uniquer.cc`) counts upwards for each base name.
"""

from __future__ import annotations

_MAX_DIGITS = 18  # of a number that fits 64 bits


def split_number(name: str) -> tuple[str, int]:
    """A name's base and number; -1 where it has none."""
    base, _, number = name.rpartition(".")
    is_number = number.isdecimal() and len(number) <= _MAX_DIGITS
    return (base, int(number)) if base and is_number else (name, -1)
