"""Patterns compiled on first use: doing so at import would make a small plan 7 % slower."""

from __future__ import annotations

import re
import sys
from typing import Any, cast

_IS_POSSESSIVE_RIGHT = sys.version_info >= (3, 11, 7)
"""Wrong in 3.11.2 (Debian), right in 3.11.7; releases in between are untested."""


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """`re.compile`, deferred to the first use."""
    return cast("re.Pattern[str]", _Pattern(text, flags))


def repeated(inner: str) -> str:
    """A possessive repetition, `(?:…)*+`, that is correct on every Python.

    Early releases of 3.11 may end after a failed last repetition. Their atomic groups are correct,
    but take 200 bytes a repetition.
    """
    return f"(?:{inner})*+" if _IS_POSSESSIVE_RIGHT else f"(?>(?:{inner})*)"


class _Pattern:
    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """A method of the compiled pattern, cached on this object."""
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found
