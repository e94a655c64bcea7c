"""Sizes as people write them: `16GiB`, `16GB`, `500M`, a number of bytes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIZE = r"(?ai)(\d{1,18}(?:\.\d{1,9})?)\s*([kmgtp]?)(i?)(b?)"
_POWER: Mapping[str, int] = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def parse_size(text: str) -> int | None:
    """The bytes of `16GiB` and of `15.75G` (2³⁰, as XLA prints it), of `16GB` (10⁹), of `512`."""
    match = re.fullmatch(_SIZE, text.strip())
    if match is None:
        return None
    amount, prefix, binary, byte = match.groups()
    base = 1000.0 if byte and not binary else 1024.0
    return round(float(amount) * base ** _POWER[prefix.lower()])
