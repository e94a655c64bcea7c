"""The kinds of files XLA writes about a program's memory, and their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hlomem.base.named_tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["combined", "assignment", "values", "live-range", "report"]


class FileName(NamedTuple):
    """The name of one of XLA's files, long and short."""

    suffix: str
    """XLA's own, behind the name of the module."""
    short: str
    """The name where each module has a folder of its own."""


_MAIN_FILE = FileName("-buffer-assignment.txt", "buffer-assignment.txt")
FILE_NAMES: Mapping[Kind, FileName] = {
    "combined": _MAIN_FILE,
    "assignment": _MAIN_FILE,
    "values": FileName("-buffer-assignment-values.txt", "values.txt"),
    "live-range": FileName("-live-range.txt", "live-range.txt"),
    "report": FileName("-memory-usage-report.txt", "memory-usage-report.txt"),
}
"""In the order XLA writes them."""
