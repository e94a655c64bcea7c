"""Why two compiles reserve different amounts: causes that add up to the difference.

Each finding gets the bytes that show it; the rest follows from the only change, or is listed by
source line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, get_args

from msgspec.structs import replace

from hlomem.report.data.causes.arrays import (
    find_casts,
    find_dtypes,
    find_inner_dtypes,
    find_layouts,
    find_padding,
)
from hlomem.report.data.causes.cause import Cause, CauseKind, Finding
from hlomem.report.data.causes.comparison import Comparison
from hlomem.report.data.causes.compilers import (
    find_backends,
    find_fusions,
    find_recompiled,
    find_versions,
)
from hlomem.report.data.causes.kept import (
    find_carried,
    find_donation,
    find_offload,
    find_policies,
    find_recomputation,
)
from hlomem.report.data.causes.ledger import Change, Entry, Ledger, SharedOut, booked
from hlomem.report.data.causes.loops import find_lengths, find_loops
from hlomem.report.data.causes.operations import OperationReader
from hlomem.report.data.causes.program import ComparedProgram
from hlomem.report.data.causes.sizes import (
    find_arguments,
    find_dimensions,
    find_inner_dimensions,
    find_layers,
    find_sharding,
)
from hlomem.report.data.names import short_line
from hlomem.report.data.peak import key_of
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_MINOR = 0.1
"""Fraction of the largest cause below which a finding does not precede lines."""


def find_causes(before: SharedOut, after: SharedOut, changes: Sequence[Change]) -> list[Cause]:
    """The causes of a difference, or its source lines; their bytes add up to it."""
    ledger = Ledger(before, after, changes)
    reader = OperationReader()
    programs = ComparedProgram(before.memory, reader), ComparedProgram(after.memory, reader)
    comparison = Comparison(*programs, reader, tuple(ledger.open))
    findings = find_all(comparison)
    shown = [ledger.take(finding.claims) for finding in findings]
    causes = []
    heir = _heir(findings)
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
            extra += ledger.take_holes()
        if finding.kind == "donation" or (finding is heir and not has_donation):
            # Donation removes results' memory, and with it the room temporaries had there.
            extra += ledger.take_lodged()
        causes.append(_cause(finding, entries, extra))
    causes += iter_rest(ledger)
    delta = after.space.size - before.space.size
    return _ranked([cause for cause in causes if cause.delta or cause.direct], delta)


def _heir(findings: Sequence[Finding]) -> Finding | None:
    """The finding that accounts for the remaining bytes; None if that cannot be told.

    Another version of XLA may explain anything, even next to other changes; so may transfers to
    the host that no buffer on the device shows.
    """
    heirs = [finding for finding in findings if finding.takes_rest]
    anyway = [finding for finding in heirs if finding.explains_anything]
    return heirs[0] if len(heirs) == 1 else next(iter(anyway), None)


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
    """Findings before lines, unless much smaller; largest contribution first."""
    sign = 1 if delta >= 0 else -1
    largest = max((abs(cause.delta) for cause in causes), default=0)

    def rank(cause: Cause) -> tuple[bool, int, str]:
        is_place = cause.kind in {"line", "holes", "results' memory"}
        is_last = is_place or abs(cause.delta) < _MINOR * largest
        return (is_last, -abs(cause.delta) if is_last else -sign * cause.delta, cause.text)

    return sorted(causes, key=rank)


class Finder(NamedTuple):
    """A finder, and the kinds of earlier findings that make it redundant."""

    find: Callable[[Comparison], Iterator[Finding]]
    unless: frozenset[str] = frozenset()
    of_operations: bool = False
    """Whether it compares only operations and arguments, which equal texts share."""


_EVERYTHING = frozenset(get_args(CauseKind))
_SIZES = frozenset({"sharding", "loop", "length", "layers", "batch", "sequence", "width"})

TABLE = (
    Finder(find_backends),
    Finder(find_donation),
    Finder(find_offload),
    Finder(find_sharding),
    Finder(find_layers, frozenset({"sharding"}), of_operations=True),
    Finder(find_lengths, frozenset({"sharding", "backend"}), of_operations=True),
    Finder(find_dimensions, frozenset({"sharding"})),
    Finder(find_arguments, frozenset({"sharding", "layers", "backend"}), of_operations=True),
    Finder(find_dtypes, of_operations=True),
    Finder(find_casts, frozenset({"dtype", "backend"}), of_operations=True),
    Finder(find_carried, _SIZES | {"dtype", "backend", "offload"}),
    # These claim whole roles, so they come after the more specific finders.
    Finder(find_recomputation, frozenset({"offload"}), of_operations=True),
    Finder(find_loops, frozenset({"sharding"}), of_operations=True),
    Finder(find_layouts, _SIZES | {"dtype", "backend"}),
    Finder(find_padding, _SIZES | {"dtype", "backend", "layout"}),
    Finder(find_versions, frozenset({"backend"})),
    Finder(find_inner_dtypes, _EVERYTHING, of_operations=True),
    Finder(find_policies, _EVERYTHING),
    Finder(find_fusions, _EVERYTHING),
    Finder(find_inner_dimensions, _EVERYTHING),
    Finder(find_recompiled, _EVERYTHING),
)


def find_all(comparison: Comparison) -> list[Finding]:
    found: list[Finding] = []
    for row in TABLE:
        if row.of_operations and comparison.is_same_text:
            continue
        if row.unless.isdisjoint(finding.kind for finding in found):
            found += row.find(comparison)
    return found


_NEARLY = 0.05
"""Two lines cancel if their sum is at most this fraction of the larger."""
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
    """The remaining bytes: in results' memory, by source line, and as holes."""
    size = booked(ledger.open).size + ledger.holes + ledger.lodged
    if size != 0 and (ledger.lodged > 0) == (size > 0) and abs(ledger.lodged) >= abs(size):
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
        text = "memory that no buffer fills (holes)"
        yield Cause(kind="holes", text=text, delta=size, direct=size, count=0)


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
    text = f"{short_line(line)}: {details}" if details else short_line(line)
    source = None if line.startswith("(") else line
    return Cause(kind="line", text=text, delta=size, direct=size, count=count, source=source)


def merge_cancelling(causes: list[Cause]) -> Iterator[Cause]:
    """Causes, largest first, with cancelling pairs merged."""
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
    return abs(one.delta + other.delta) <= _NEARLY * max(abs(one.delta), abs(other.delta))
