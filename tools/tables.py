"""Tables that tools measure: in Markdown, between the marks of a document, kept from run to run.

In: a document with the lines `<!-- NAME: begin -->` and `<!-- NAME: end -->`, or rows as JSON. Out:
the document with another text between them, or the rows.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

R = TypeVar("R")


def row(cells: Iterable[str]) -> str:
    """A row of a table; a bar in a cell would end it."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def head(names: Sequence[str], marks: Sequence[str] = ()) -> list[str]:
    """The first two rows; marks such as `---:` where columns are not all alike."""
    return [row(names), f"|{'|'.join(marks or ['---'] * len(names))}|"]


def put(path: Path, name: str, text: str) -> None:
    """Put a text between the marks of that name."""
    before, _, after = _parted(path, name)
    begin, end = _marks(name)
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def held(path: Path, name: str) -> str:
    """The text between the marks of that name."""
    return _parted(path, name)[1].strip("\n")


def known(path: Path | None, make: Callable[..., R]) -> list[R]:
    """The rows that a tool wrote to a file before; none where there is no file."""
    if path is None or not path.exists():
        return []
    return [make(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))]


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def _parted(path: Path, name: str) -> tuple[str, str, str]:
    """What stands before, between and after the marks."""
    begin, end = _marks(name)
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    inside, ended, after = rest.partition(end)
    if not found or not ended:
        sys.exit(f"{path}: no lines `{begin}` and `{end}`")
    return before, inside, after
