"""Files that are imported with other texts, so that a change of the source can be tried.

For a child process that does nothing else, before it imports the factory. No file is written.
"""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from os.path import realpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType


def install(texts: Mapping[str, str]) -> None:
    """From now on, import files as if these were their texts."""
    given = {realpath(file): text for file, text in texts.items()}
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        text = given.get(realpath(self.path))
        if text is None:
            return original(self, fullname)
        return self.source_to_code(text.encode(), self.path)

    SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]
