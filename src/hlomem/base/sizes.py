"""Sizes as text, of users and logs; XLA's own rounding in dumps is in `hlomem.dump.grammar`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIZE = r"(?ai)(\d{1,18}(?:\.\d{1,9})?)\s*([kmgtp]?)(i?)(b?)"
_POWER: Mapping[str, int] = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_PRINTED_NUMBER = r"(?a)-?\d{1,20}(?:\.\d{1,9})?"
_PRINTED_UNITS = "BKMGTPE"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def parse_size(text: str) -> int | None:
    """The bytes of `16GiB` and of `15.75G` (2³⁰, as XLA prints it), of `16GB` (10⁹), of `512`."""
    match = re.fullmatch(_SIZE, text.strip())
    if match is None:
        return None
    amount, prefix, binary, byte = match.groups()
    base = 1000 if byte and not binary else 1024
    return _scaled(amount, base ** _POWER[prefix.lower()])


def parse_printed_size(text: str) -> int:
    """The bytes of `1.50G`, `6.00MiB`, `4096 bytes` in a log; units are powers of 1024."""
    number = re.match(_PRINTED_NUMBER, text)
    if number is None:
        raise ValueError(f"not a size: {text}")
    unit = text[number.end() :].strip()[:1].upper()
    if not unit:
        return _scaled(number[0], 1)
    return _scaled(number[0], 1024 ** max(_PRINTED_UNITS.find(unit), 0))


def _scaled(amount: str, unit: int) -> int:
    """An amount of units; exact for integers."""
    return round(float(amount) * unit) if "." in amount else int(amount) * unit


def format_bytes(size: int) -> str:
    """`size` in IEC units with three or more digits: 512 B, 64.3 KiB, 1.26 GiB."""
    amount, unit = float(abs(size)), 0
    while amount >= 1023.995 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    digits = 0 if unit == 0 else 1 if amount >= 99.95 or unit == 1 else 2
    return f"{'-' if size < 0 else ''}{amount:.{digits}f} {_UNITS[unit]}"


def format_change(part: int, whole: int) -> str:
    """A signed relative change: +3.1%, -0.4%, +0.0%."""
    share = part / max(whole, 1)
    text = f"{abs(share):.1%}"
    return f"{'-' if share < 0 and text != '0.0%' else '+'}{text}"
