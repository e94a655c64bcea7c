"""A loop that is unrolled now, or the other way round.

From the scopes of operations: JAX puts those of a scan into `while/body`. What XLA makes of loops
by itself changes no names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report.data import roles
from hlomem.report.data.causes.cause import Finding
from hlomem.report.data.causes.comparison import Comparison, at_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.causes.ledger import Entry
    from hlomem.report.data.causes.program import Program

_OF_LOOPS = frozenset({roles.STACKED, roles.CARRIED})


def find_loops(comparison: Comparison) -> Iterator[Finding]:
    """Loops that only one of the programs has."""
    before, after = comparison.programs
    added, dropped = after.loops - before.loops, before.loops - after.loops
    if bool(added) == bool(dropped):  # none, or others in their place
        return
    line = _line(after if added else before)
    scan = f"(lax.scan{at_line(line, ' at ')})"
    text = f"runs in a loop {scan}" if added else f"no longer runs in a loop {scan}, but unrolled"
    yield Finding(
        kind="loop",
        text=text,
        claims=_is_of_loop,
        source=line,
        adds_operations=True,
    )


def _is_of_loop(entry: Entry) -> bool:
    return entry.buffer.role in _OF_LOOPS


def _line(program: Program) -> str | None:
    """The line of the first loop."""
    for operation in program.operations:
        if operation.opcode == "while" and (line := program.line(operation)):
            return line
    return None
