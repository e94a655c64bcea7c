"""Arguments that are donated now, or no longer.

From `input_output_alias` and `buffer_donor` of the modules, or, without modules, from arguments'
allocations that are live out. The bytes are those of the results that had, or have, memory of
their own: one as large as the argument for each that was donated.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hlomem.report.data.causes.cause import Finding
from hlomem.report.data.causes.comparison import Comparison, name_arguments
from hlomem.report.data.causes.ledger import AFTER, BEFORE, Entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.report.data.causes.program import Argument


def find_donation(comparison: Comparison) -> Iterator[Finding]:
    """The donations that were added, then those that were dropped."""
    pairs = comparison.arguments
    added = [pair.before for pair in pairs if pair.after.is_donated > pair.before.is_donated]
    dropped = [pair.after for pair in pairs if pair.before.is_donated > pair.after.is_donated]
    if added:
        names = name_arguments(added, comparison.before.arguments.values())
        text = f"now donated: {names}; their memory is reused by results"
        yield _finding(comparison, added, BEFORE, text)
    if dropped:
        names = name_arguments(dropped, comparison.after.arguments.values())
        text = f"no longer donated: {names}; results take memory of their own"
        yield _finding(comparison, dropped, AFTER, text)


def _finding(
    comparison: Comparison, arguments: Sequence[Argument], side: int, text: str
) -> Finding:
    """`side` is where the arguments are not donated, and results have memory of their own."""
    waiting = Counter(argument.size for argument in arguments)

    def claims(entry: Entry) -> bool:
        size = abs(entry.size)
        if entry.side != side or entry.is_lodged or not waiting[size]:
            return False
        if not comparison.is_result(entry):
            return False
        waiting[size] -= 1
        return True

    return Finding(kind="donation", text=text, claims=claims, takes_rest=False)
