"""Why two compiles reserve different amounts: causes that add up to the difference.

In: both sides, shared out, and the changes of their buffers. Out: `Cause`s, what explains most
first. First the programs are compared (`table`), then each finding is given the bytes that show it.
What is left follows from the one thing that was changed, where it is one; else it is told by line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report.data.causes.cause import Cause, Finding
from hlomem.report.data.causes.comparison import Comparison
from hlomem.report.data.causes.ledger import Entry, Ledger, booked
from hlomem.report.data.causes.operations import OperationReader
from hlomem.report.data.causes.program import Program
from hlomem.report.data.causes.rest import iter_rest
from hlomem.report.data.causes.table import find_all
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.report.data.causes.changes import Change, SharedOut

_MINOR = 0.1
"""Share of the largest cause below which a finding does not come before lines."""


def find_causes(before: SharedOut, after: SharedOut, changes: Sequence[Change]) -> list[Cause]:
    """The causes of a difference, or the lines it is in, in bytes that add up to it."""
    ledger = Ledger(before, after, changes)
    reader = OperationReader()
    programs = Program(before.memory, reader), Program(after.memory, reader)
    comparison = Comparison(*programs, reader, tuple(ledger.open))
    findings = find_all(comparison)
    shown = [ledger.take(finding.claims) for finding in findings]
    causes = []
    heir = _heir(findings)
    # With the memory of results goes the room temporaries had in it: no other cause's doing.
    has_donation = any(finding.kind == "donation" for finding in findings)
    for finding, entries in zip(findings, shown, strict=True):
        rest: list[Entry] = []
        if finding is heir:
            rest = ledger.take(
                lambda entry, heir=finding: (
                    heir.adds_operations  # type: ignore[misc]
                    or comparison.is_known_operation(entry)
                )
            )
        extra = booked(rest).size
        if finding is heir:
            extra += ledger.take_holes() + (0 if has_donation else ledger.take_lodged())
        causes.append(_cause(finding, entries, extra))
    causes += iter_rest(ledger)
    delta = after.space.size - before.space.size
    return _ranked([cause for cause in causes if cause.delta or cause.direct], delta)


def _heir(findings: Sequence[Finding]) -> Finding | None:
    """The finding from which all follows that no buffer shows; None where that cannot be told.

    Next to other changes, another version of XLA may be behind anything.
    """
    heirs = [finding for finding in findings if finding.takes_rest]
    compilers = [finding for finding in heirs if finding.kind in {"version", "backend"}]
    return heirs[0] if len(heirs) == 1 else next(iter(compilers), None)


def _cause(finding: Finding, entries: Sequence[Entry], extra: int) -> Cause:
    size, count = booked(entries)
    text = finding.text if finding.is_certain else f"likely {finding.text}"
    if finding.shows_count and count:
        text += f", in {plural(count, 'buffer')}"
    return Cause(
        kind=finding.kind,
        text=text,
        delta=size + extra,
        direct=size,
        count=count,
        source=finding.source,
        is_certain=finding.is_certain,
    )


def _ranked(causes: list[Cause], delta: int) -> list[Cause]:
    """Findings before lines unless they are small beside them; of each what explains most first."""
    sign = 1 if delta >= 0 else -1
    largest = max((abs(cause.delta) for cause in causes), default=0)

    def rank(cause: Cause) -> tuple[bool, int, str]:
        is_place = cause.kind in {"line", "holes", "results' memory"}
        is_last = is_place or abs(cause.delta) < _MINOR * largest
        return (is_last, -abs(cause.delta) if is_last else -sign * cause.delta, cause.text)

    return sorted(causes, key=rank)
