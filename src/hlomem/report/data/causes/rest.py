"""The bytes no finding accounts for: by the line of the program, and as lent by results' memory.

In: entries nobody booked. Out: `Cause`s of kind "results' memory", "line" and "holes". Entries of
one line are added up, and lines that cancel each other are one, so that what only changes places
does not stand twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.report.data.causes.cause import Cause
from hlomem.report.data.causes.comparison import base_name
from hlomem.report.data.causes.ledger import Entry, Ledger, booked
from hlomem.report.data.peak import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_NEARLY = 0.05
"""Two lines cancel if what is left of them is at most this share of the larger."""
_WORDS = {
    "new": "new",
    "vanished": "gone",
    "grown": "larger",
    "shrunk": "smaller",
    "lives longer": "alive longer",
    "lives shorter": "alive for a shorter time",
    "now at the peak": "alive now when most is needed",
    "no longer at the peak": "no longer alive when most is needed",
    "moved here": "in another memory space before",
    "moved away": "in another memory space now",
    "shares otherwise": "sharing memory with others",
}


def iter_rest(ledger: Ledger) -> Iterator[Cause]:
    """The causes that are none, but a place where the bytes are."""
    size = booked(ledger.open).size + ledger.holes + ledger.lodged
    if _explains(ledger.lodged, size):
        ledger.take(lambda _: True)
        yield _lodged(size)
        return
    lines: dict[str, list[Entry]] = {}
    for entry in ledger.take(lambda _: True):
        lines.setdefault(key_of(entry.change.buffer, "line"), []).append(entry)
    found = [cause for line, entries in lines.items() if (cause := _line(line, entries))]
    yield from merge_cancelling(found)
    if ledger.lodged:
        yield _lodged(ledger.lodged)
    if size := ledger.holes:
        text = "memory that nobody fills (holes)"
        yield Cause(kind="holes", text=text, delta=size, direct=size, count=0)


def _explains(lodged: int, size: int) -> bool:
    """Whether room in results' memory, won or lost, is behind all of the rest.

    It is where there is at least as much of it: who loses it finds room elsewhere for a part, and
    other moments become the fullest.
    """
    return size != 0 and (lodged > 0) == (size > 0) and abs(lodged) >= abs(size)


def _lodged(size: int) -> Cause:
    text = (
        "temporaries that lay in memory reserved for results need memory of their own"
        if size > 0
        else "temporaries lie in memory that is reserved for results anyway"
    )
    return Cause(kind="results' memory", text=text, delta=size, direct=size, count=0)


def _line(line: str, entries: Sequence[Entry]) -> Cause | None:
    size, count = booked(entries)
    if not size:
        return None
    kinds: dict[str, int] = {}
    for change in {id(entry.change): entry.change for entry in entries}.values():
        if change.kind != "same":
            kinds[change.kind] = kinds.get(change.kind, 0) + 1
    details = ", ".join(f"{number} {_WORDS[kind]}" for kind, number in kinds.items())
    text = f"{base_name(line)}: {details}" if details else base_name(line)
    source = None if line.startswith("(") else line
    return Cause(kind="line", text=text, delta=size, direct=size, count=count, source=source)


def merge_cancelling(causes: list[Cause]) -> Iterator[Cause]:
    """The causes of which no two cancel each other, the largest first."""
    left = sorted(causes, key=lambda cause: (-abs(cause.delta), cause.text))
    while left:
        first = left.pop(0)
        against = [other for other in left if do_cancel(first, other)]
        if not against:
            yield first
            continue
        best = min(against, key=lambda other: abs(first.delta + other.delta))
        left.remove(best)
        if net := first.delta + best.delta:
            text = f"{first.text}; against it {best.text}"
            count = first.count + best.count
            yield replace(first, text=text, delta=net, direct=net, count=count)


def do_cancel(one: Cause, other: Cause) -> bool:
    """Whether next to nothing is left of two causes together."""
    return abs(one.delta + other.delta) <= _NEARLY * max(abs(one.delta), abs(other.delta))
