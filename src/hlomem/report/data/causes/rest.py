"""What no finding accounts for: by the line of the program, and what results' memory lends.

In: entries nobody booked. Out: `Cause`s of kind "results' memory", "line" and "holes". Entries of
one line are added up, so that what comes and goes there does not stand twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report.data.causes.cause import Cause
from hlomem.report.data.causes.comparison import base_name
from hlomem.report.data.causes.ledger import AFTER, booked
from hlomem.report.data.peak import key_of
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.report.data.causes.comparison import Comparison
    from hlomem.report.data.causes.ledger import Entry, Ledger


def iter_rest(comparison: Comparison, ledger: Ledger, holes: int) -> Iterator[Cause]:
    """The causes that are none, but a place where the bytes are."""
    lent = ledger.take(lambda entry: _is_lent(comparison, entry))
    for side in range(2):
        if cause := _lent([entry for entry in lent if entry.side == side], side):
            yield cause
    lines: dict[str, list[Entry]] = {}
    for entry in ledger.take(lambda _: True):
        lines.setdefault(key_of(entry.change.buffer, "line"), []).append(entry)
    for line, entries in lines.items():
        if cause := _line(line, entries):
            yield cause
    if holes:
        text = "memory that nobody fills (holes)"
        yield Cause(kind="holes", text=text, delta=holes, direct=holes, count=0)


def _is_lent(comparison: Comparison, entry: Entry) -> bool:
    """Whether a temporary on this side lies in the memory of a result on the other."""
    return not comparison.is_result(entry) and comparison.was_result(entry)


def _lent(entries: list[Entry], side: int) -> Cause | None:
    size, count = booked(entries)
    if not size:
        return None
    what = plural(count, "temporary buffer")
    text = (
        f"{what} lay in memory reserved for results, now in memory of temporaries"
        if side == AFTER
        else f"{what} now in memory that is reserved for results anyway"
    )
    return Cause(kind="results' memory", text=text, delta=size, direct=size, count=count)


def _line(line: str, entries: Sequence[Entry]) -> Cause | None:
    size, count = booked(entries)
    if not size:
        return None
    kinds: dict[str, int] = {}
    for change in {id(entry.change): entry.change for entry in entries}.values():
        if change.delta:
            kinds[change.kind] = kinds.get(change.kind, 0) + 1
    details = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    text = f"{base_name(line)}: {details}" if details else base_name(line)
    source = None if line.startswith("(") else line
    return Cause(kind="line", text=text, delta=size, direct=size, count=count, source=source)
