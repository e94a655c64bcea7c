"""Patterns that are compiled when they are first used.

A module has patterns for all it may meet, a process meets few of them, and to compile one takes
longer than to use it on a small text.
"""

from __future__ import annotations

import re
import sys
from typing import Any, cast

_IS_POSSESSIVE_RIGHT = sys.version_info >= (3, 11, 7)
"""3.11.2, which Debian has, is wrong; 3.11.7 was tested, and those between are not trusted."""


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """The same as `re.compile`, but later."""
    return cast("re.Pattern[str]", _Pattern(text, flags))


def repeated(inner: str) -> str:
    """A pattern for as many of another as there are, none of which is ever given back.

    That is `(?:…)*+`; but early releases of Python 3.11 may stay where a last one that failed has
    led. An atomic group, which they get right, takes 200 bytes for each.
    """
    return f"(?:{inner})*+" if _IS_POSSESSIVE_RIGHT else f"(?>(?:{inner})*)"


class _Pattern:
    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """A method of the compiled pattern, found here from now on."""
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found
