"""Another split over devices.

Another number of partitions; or arguments whose dimensions change by factors of that number, where
the collectives change as well or nothing else does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report.data.causes.cause import Finding
from hlomem.report.data.causes.comparison import ArgumentPair, Comparison, name_arguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.report.data.causes.ledger import Entry
    from hlomem.report.data.memory import Buffer


def find_sharding(comparison: Comparison) -> Iterator[Finding]:
    """The one finding there is if the split is another."""
    old, new = comparison.before.partitions, comparison.after.partitions
    if old != new:
        text = f"split over {_devices(new)} instead of {old}"
        yield _finding(comparison, f"{text}{_arguments(comparison)}", certain=True)
        return
    if new == 1 or not comparison.resized:
        return
    if not all(_is_resharded(pair, new) for pair in comparison.resized):
        return
    has_other_collectives = comparison.before.collectives != comparison.after.collectives
    if has_other_collectives or _is_local(comparison, new):
        text = f"split differently over {_devices(new)}{_arguments(comparison)}"
        yield _finding(comparison, text, certain=has_other_collectives)


def _is_local(comparison: Comparison, partitions: int) -> bool:
    """Whether arguments changed by a number of devices, but nothing that is computed from them.

    A larger batch makes activations larger; of an argument that is held whole each device takes
    the part it had before.
    """
    return not any(
        _is_split(entry.change.before, entry.change.after, partitions)
        for entry in comparison.entries
        if entry.buffer.opcode != "parameter"
    )


def _devices(count: int) -> str:
    return f"{count} device{'s' if count > 1 else ''}"


def _finding(comparison: Comparison, text: str, *, certain: bool) -> Finding:
    count = max(comparison.before.partitions, comparison.after.partitions)

    def claims(entry: Entry) -> bool:
        change = entry.change
        return _is_split(change.before, change.after, count)

    return Finding(
        kind="sharding", text=text, claims=claims, is_certain=certain, adds_operations=True
    )


def _is_resharded(pair: ArgumentPair, partitions: int) -> bool:
    """Whether every dimension grew or shrank by a number of devices."""
    return all(_is_factor(a, b, partitions) for a, b in pair.changed_dimensions.values())


def _is_factor(one: int, other: int, partitions: int) -> bool:
    small, large = sorted((one, other))
    return small > 0 and large % small == 0 and partitions % (large // small) == 0


def _is_split(one: Buffer | None, other: Buffer | None, partitions: int) -> bool:
    return (
        one is not None
        and other is not None
        and one.size != other.size
        and _is_factor(one.size, other.size, partitions)
    )


def _arguments(comparison: Comparison) -> str:
    """The arguments a device has more or less of."""
    parts = []
    for word, pairs in (
        ("less", [p for p in comparison.resized if p.after.size < p.before.size]),
        ("more", [p for p in comparison.resized if p.after.size > p.before.size]),
    ):
        if pairs:
            everything = comparison.after.arguments.values()
            names = name_arguments([pair.after for pair in pairs], everything)
            parts.append(f"{word} of {names}")
    return f": each device holds {' and '.join(parts)}" if parts else ""
