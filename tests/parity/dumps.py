"""A dump as stages of the pipeline, so that the first stage that differs names itself."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

STAGES = ("values", "live ranges", "assignment", "report")
"""In the order of the pipeline: a mistake in one shows in those after it."""

GOLDEN_FILES = {
    "values": "values.txt",
    "live ranges": "live-range.txt",
    "assignment": "buffer-assignment.txt",
    "report": "memory-usage-report.txt",
}
_SUFFIXES = {
    "values": "-buffer-assignment-values.txt",
    "live ranges": "-live-range.txt",
    "assignment": "-buffer-assignment.txt",
    "report": "-memory-usage-report.txt",
}


def read_golden(home: Path) -> dict[str, str]:
    """What XLA wrote, by stage."""
    return _by_stage(
        {
            stage: (home / name).read_bytes().decode()
            for stage, name in GOLDEN_FILES.items()
            if (home / name).exists()
        }
    )


def sort_written(texts: Mapping[str, str]) -> dict[str, str]:
    """What hlomem wrote, by stage; `texts` by the name of the file."""
    return _by_stage(
        {
            stage: text
            for stage, suffix in _SUFFIXES.items()
            for name, text in texts.items()
            if name == f"module{suffix}"
        }
    )


def _by_stage(files: dict[str, str]) -> dict[str, str]:
    """Until jaxlib 0.9 one file holds three stages, which are cut apart at their titles."""
    if "values" in files:
        return files
    text = files["assignment"]
    values, live_ranges = text.index("\nTotal bytes used:"), text.index("HloLiveRange (max ")
    return files | {
        "assignment": text[:values],
        "values": text[values:live_ranges],
        "live ranges": text[live_ranges:],
    }


def first_difference(want: str, got: str) -> str:
    """The first line that differs, with both sides; empty if none does."""
    lines = itertools.zip_longest(want.splitlines(), got.splitlines(), fillvalue="(no line)")
    for number, (one, other) in enumerate(lines, start=1):
        if one != other:
            return f"line {number}\n  XLA    {one}\n  hlomem {other}"
    return "" if want == got else "the ends of lines"


def with_sorted_lists(values: str) -> str:
    """The values, with the lines of every list of positions or uses sorted."""
    return "\n".join(_sort_runs(values.split("\n"), _is_list_line, sorted))


def with_sorted_rows(report: str) -> str:
    """The report, with shapes sorted in every row, and rows of the same size sorted."""
    return "\n".join(_sort_runs(report.split("\n"), _is_report_row, _sort_rows))


def _is_list_line(line: str) -> bool:
    return line.startswith("  ") and not line.startswith("   ")


def _is_report_row(line: str) -> bool:
    return line.startswith("\t") and line.count(";") == 4 and "cumulative_size" not in line


def _sort_rows(rows: Iterable[str]) -> list[str]:
    """The first two columns follow from sizes alone and keep their order."""
    heads: list[str] = []
    tails: list[str] = []
    for row in rows:
        cumulative, size, offset, count, shapes = row.split(";")
        heads.append(f"{cumulative};{size}")
        tails.append(f"{size};{offset};{count};{sorted(shapes.strip().split(', '))}")
    return [*heads, *sorted(tails)]


def _sort_runs(lines: list[str], belongs: _Test, sort: _Sort) -> list[str]:
    sorted_lines: list[str] = []
    for is_run, run in itertools.groupby(lines, key=belongs):
        members = list(run)
        sorted_lines += sort(members) if is_run else members
    return sorted_lines


if TYPE_CHECKING:
    from collections.abc import Callable

    _Test = Callable[[str], bool]
    _Sort = Callable[[Iterable[str]], list[str]]
