"""Values that are kept in the host's memory now, or no longer.

Those in memory space 5 that have no counterpart there on the other side. The bytes are those of
the arrays of the same type and dimensions that the device held instead.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hlomem.base.sizes import format_bytes
from hlomem.report.data.causes.cause import Finding
from hlomem.report.data.causes.comparison import Comparison, base_name
from hlomem.report.data.causes.ledger import AFTER, BEFORE, Entry
from hlomem.report.data.causes.program import Program, array_of_buffer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.memory import Buffer


def find_offload(comparison: Comparison) -> Iterator[Finding]:
    """Arrays that went to the host, then those that came back."""
    before, after = comparison.programs
    for there, here, side, text in (
        (after, before, BEFORE, "kept in the host's memory now"),
        (before, after, AFTER, "no longer kept in the host's memory"),
    ):
        if moved := _only_in(there, here):
            yield _finding(moved, here, side, text)


def _only_in(one: Program, other: Program) -> list[Buffer]:
    """The values one program has on the host and the other does not."""
    known = Counter(map(array_of_buffer, other.host_buffers))
    found = []
    for buffer in one.host_buffers:
        array = array_of_buffer(buffer)
        if known[array]:
            known[array] -= 1
        elif array is not None:
            found.append(buffer)
    return found


def _finding(moved: list[Buffer], device: Program, side: int, text: str) -> Finding:
    waiting = Counter(map(array_of_buffer, moved))

    def claims(entry: Entry) -> bool:
        array = array_of_buffer(entry.buffer)
        if entry.side != side or not waiting[array]:
            return False
        waiting[array] -= 1
        return True

    line = next((buffer.source for buffer in moved if buffer.source), None)
    line = line or _line_on_device(moved, device)
    size = format_bytes(sum(buffer.size for buffer in moved))
    where = f" ({base_name(line)})" if line else ""
    return Finding(
        kind="offload",
        text=f"{text}: {size}{where}",
        claims=claims,
        source=line,
        takes_rest=False,
    )


def _line_on_device(moved: list[Buffer], device: Program) -> str | None:
    """The operation that computed the same array when the device kept it."""
    arrays = set(map(array_of_buffer, moved))
    for buffer in device.memory.buffers:
        if buffer.source and array_of_buffer(buffer) in arrays:
            return buffer.source
    return None
