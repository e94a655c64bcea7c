"""Names that are unique in a module, as XLA makes them.

Mirrors `service/name_uniquer.cc`: a name that is taken gets a dot and the next free number.
"""

from __future__ import annotations

import re

from hlomem.hlo.shape import ELEMENT_TYPE_BY_TEXT

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.\-]")
_MAX_DIGITS = 18


def sanitized(name: str) -> str:
    """A name without what may not be in one (`NameUniquer::GetSanitizedName`)."""
    if not name:
        return name
    name = _FORBIDDEN.sub("_", name)
    if not (name[0].isalpha() or name[0] == "_"):
        name = f"_{name[1:]}"
    if name in ELEMENT_TYPE_BY_TEXT:
        name += "_"
    if name.startswith("__") and not name.startswith("__xla_"):
        name = f"a{name[1:]}"
    return name


class UniqueNames:
    """The names of one module's computations, or of its instructions."""

    def __init__(self) -> None:
        self._used: dict[str, set[int]] = {}
        self._next: dict[str, int] = {}

    def take(self, name: str) -> str:
        """A name, or one like it that is free; marks it as taken."""
        name = sanitized(name) or "name"
        root, dot, digits = name.rpartition(".")
        has_number = bool(root and dot) and _is_number(digits)
        number = int(digits) if has_number else 0
        root = root if has_number else name
        number = self._register(root, number)
        return f"{root}.{number}" if number or has_number else root

    def _register(self, root: str, number: int) -> int:
        used = self._used.setdefault(root, set())
        if number in used:
            number = self._next.get(root, 0)
            while number in used:
                number += 1
            self._next[root] = number + 1
        used.add(number)
        return number


def _is_number(digits: str) -> bool:
    return digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS
