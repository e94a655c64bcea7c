"""Measurements for those who review: annotations of GitHub, and a table for a pull request.

In: what was measured, test by test. Out: lines of GitHub's workflow commands, and Markdown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hlomem.base.sizes import format_bytes
from hlomem.report.screens.diff_text import signed
from hlomem.report.screens.text import percent
from hlomem.testing.measurement import Measurement  # noqa: TC001 - msgspec reads the type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Entry(Struct, frozen=True, kw_only=True):
    """One program of one test."""

    key: str
    """The test, and the program's name where it has several."""
    measurement: Measurement
    before: Measurement | None = None
    limit: int | None = None
    problems: tuple[str, ...] = ()
    note: str = ""
    file: str = ""
    """The place of an annotation: the line to look at, or else the test."""
    line: int = 1


def draw_annotations(entries: Sequence[Entry]) -> Iterator[str]:
    """A workflow command for every problem."""
    for entry in entries:
        for problem in entry.problems:
            place = f"file={_property(entry.file)},line={entry.line}"
            yield f"::error {place},title=hlomem::{_data(f'{entry.key} {problem}')}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def draw_table(entries: Sequence[Entry]) -> str:
    """The measurements as a table in Markdown, problems first."""
    ordered = sorted(entries, key=lambda entry: (not entry.problems, entry.key))
    rows = [_row(entry) for entry in ordered]
    head = ["| | program | target | needs | baseline | change | limit | most of it |"]
    return "\n".join(["### Memory of compiled programs", "", *head, "|" + "---|" * 8, *rows, ""])


def _row(entry: Entry) -> str:
    now, before = entry.measurement, entry.before
    comparable = before is not None and not entry.note
    delta = now.bytes - before.bytes if comparable and before is not None else 0
    change = "" if not comparable else signed(delta) if delta else "none"
    if delta and before is not None and before.bytes:
        change += f" ({'+' if delta > 0 else '-'}{percent(abs(delta), before.bytes)})"
    cells = [
        "❌" if entry.problems else "✅",
        f"`{entry.key}`",
        now.target,
        format_bytes(now.bytes),
        "new" if before is None else format_bytes(before.bytes),
        change or entry.note,
        "" if entry.limit is None else format_bytes(entry.limit),
        next((f"`{line}`" for line in now.lines), ""),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
