"""Findings of a program's reports as SARIF 2.1.0: padding, copies, donations, at their lines."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.sarif import build_log, file_location, line_location
from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.report.data.copies import build_copies
from hlomem.report.data.donation import build_donation
from hlomem.report.data.padding import build_padding
from hlomem.report.data.summary import WORTH_SAYING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.memory import MemoryView, Space

RULES = {
    "padding": "An array is larger in memory than its elements.",
    "copies": "A copy is alive at the peak.",
    "donate": "An argument that a result could reuse is not donated, or donated but not reused.",
}


class _Found(NamedTuple):
    rule: str
    subject: str
    size: int
    text: str
    source: str | None


def build_findings(memory: MemoryView, space: Space, version: str, path: str) -> dict[str, Any]:
    """A log of what takes memory and need not, as far as it is worth saying, largest first.

    `path` stands for what has no line.
    """
    found = [*_padding(memory, space), *_copies(memory, space), *_donations(memory, space)]
    found = [one for one in found if one.size >= WORTH_SAYING * space.size]
    found.sort(key=lambda one: -one.size)
    return build_log(RULES, [_result(one, path) for one in found], (), version)


def _padding(memory: MemoryView, space: Space) -> Iterator[_Found]:
    for row in build_padding(memory, space).rows:
        if row.padding_at_peak:
            size = format_bytes(row.padding_at_peak)
            text = (
                f"{row.shape}: {size} of padding at the peak, in {row.count_at_peak} of its buffers"
            )
            text = f"{text}; {row.fix}" if row.fix else text
            yield _Found("padding", row.shape, row.padding_at_peak, text, row.source)


def _copies(memory: MemoryView, space: Space) -> Iterator[_Found]:
    for group in build_copies(memory, space).groups:
        if group.count_at_peak:
            text = f"a copy of {format_bytes(group.size)}, alive at the peak: {group.why}"
            yield _Found("copies", group.example.name, group.size, text, group.source)


def _donations(memory: MemoryView, space: Space) -> Iterator[_Found]:
    for row in build_donation(memory, space).rows:
        if row.state in {"possible", "lost"}:
            text = f"{row.name} ({format_bytes(row.size)}): {row.why}"
            yield _Found("donate", row.name, row.size, text, None)


def _result(found: _Found, path: str) -> dict[str, Any]:
    place = line_location(found.source) or file_location(path)
    mark = sha256(f"{found.rule}\n{found.subject}".encode()).hexdigest()
    return {
        "ruleId": found.rule,
        "level": "note",
        "message": {"text": visible(found.text)},
        "locations": [
            {"physicalLocation": place, "logicalLocations": [{"name": visible(found.subject)}]}
        ],
        "partialFingerprints": {"ruleAndSubject/v1": mark},
    }
