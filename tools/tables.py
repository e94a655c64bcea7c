"""Tables that tools measure: between the marks of a document, and kept from run to run.

In: a document with the lines `<!-- NAME: begin -->` and `<!-- NAME: end -->`, or rows as JSON. Out:
the document with another text between them, or the rows.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

R = TypeVar("R")


def put(path: Path, name: str, text: str) -> None:
    """Put a text between the marks of that name."""
    head, _, tail = _parted(path, name)
    begin, end = _marks(name)
    path.write_text(f"{head}{begin}\n\n{text}\n\n{end}{tail}", encoding="utf-8")


def held(path: Path, name: str) -> str:
    """The text between the marks of that name."""
    return _parted(path, name)[1].strip("\n")


def known(path: Path | None, row: Callable[..., R]) -> list[R]:
    """The rows that a tool wrote to a file before; none where there is no file."""
    if path is None or not path.exists():
        return []
    return [row(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))]


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def _parted(path: Path, name: str) -> tuple[str, str, str]:
    """What stands before, between and after the marks."""
    begin, end = _marks(name)
    head, found, rest = path.read_text(encoding="utf-8").partition(begin)
    inside, ended, tail = rest.partition(end)
    if not found or not ended:
        sys.exit(f"{path}: no lines `{begin}` and `{end}`")
    return head, inside, tail
