"""Patterns that are compiled when they are first used.

A module has patterns for all it may meet, a process meets few of them, and to compile one takes
longer than to use it on a small text.
"""

from __future__ import annotations

import re
from typing import Any, cast


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """The same as `re.compile`, but later."""
    return cast("re.Pattern[str]", _Pattern(text, flags))


def repeated(inner: str) -> str:
    """A pattern for as many of another as there are, none of which is ever given back.

    That is `(?:…)*+`; but Python 3.11.2, which Debian has, may stay where a last one that failed
    has led.
    """
    return f"(?>(?:{inner})*)"


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
