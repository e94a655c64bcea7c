"""Values that fusions no longer keep to themselves, or do now.

An operation that is inside of a fusion on one side and has a buffer on the other, in programs that
are otherwise the same. `optimization_barrier` does that, flags do, and changes of the code nearby.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report.data.causes.cause import Finding
from hlomem.report.data.causes.comparison import Comparison, base_name
from hlomem.report.data.causes.ledger import AFTER, BEFORE, Entry
from hlomem.report.data.causes.program import array_of_buffer
from hlomem.report.data.matching import operation_key

if TYPE_CHECKING:
    from collections.abc import Iterator


def find_fusions(comparison: Comparison) -> Iterator[Finding]:
    """Arrays that have memory of their own now, or no longer, and were or are part of a fusion."""
    if comparison.has_other_era or not comparison.has_same_arguments:
        return
    for side, text in (
        (AFTER, "is no longer fused into what reads it and needs memory of its own"),
        (BEFORE, "is fused into what reads it now and needs no memory"),
    ):
        found = [e for e in comparison.entries if e.side == side and _was_fused(comparison, e)]
        if found:
            largest = max(found, key=lambda entry: abs(entry.size))
            yield _finding(found, f"{_named(largest)} {text}", largest.buffer.source)


def _named(entry: Entry) -> str:
    name = (entry.buffer.op_name or "").rpartition("/")[2]
    line = entry.buffer.source
    return f"{name} ({base_name(line)})" if line else name


def _was_fused(comparison: Comparison, entry: Entry) -> bool:
    """Whether the other side has the operation, with its elements, in a fusion only."""
    if entry.partner is not None or not entry.buffer.op_name:
        return False
    other = comparison.programs[BEFORE if entry.side == AFTER else AFTER]
    key = (operation_key(entry.buffer.op_name), array_of_buffer(entry.buffer))
    return key in other.fused_arrays


def _finding(entries: list[Entry], text: str, line: str | None) -> Finding:
    ids = {id(entry.change) for entry in entries}
    return Finding(
        kind="fusion",
        text=text,
        claims=lambda entry: id(entry.change) in ids,
        source=line,
        is_certain=True,
        takes_rest=True,
    )
