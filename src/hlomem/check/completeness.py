"""Nothing missing, nothing twice: ids, allocation numbers, places, live ranges.

Every value that is used has exactly one place; every value with a place is known to the other
files of the dump.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hlomem.check.evidence import as_evidence, value_finding
from hlomem.check.findings import Finding, ValueEvidence
from hlomem.view.joined import display_name
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from hlomem.base.quantities import ValueId
    from hlomem.dump.records import ShapeIndex, UsedValue, Value
    from hlomem.view.instruction_line import PrintedInstruction
    from hlomem.view.joined import JoinedDump, PlacedValue


def check_completeness(joined: JoinedDump) -> Iterator[Finding]:
    """Every rule about missing and repeated entries."""
    yield from _check_allocation_numbers(joined)
    yield from _check_places(joined)
    if joined.dump.values is not None:
        yield from _check_used_values(joined)
    if joined.dump.live_ranges is not None:
        yield from _check_live_ranges(joined)
        yield from _check_sequence(joined)


def _check_allocation_numbers(joined: JoinedDump) -> Iterator[Finding]:
    for expected, allocation in enumerate(joined.allocations):
        if allocation.index != expected:
            yield Finding(
                rule="completeness/allocation-number",
                message=f"allocation {allocation.index} is listed where {expected} should be",
                allocations=(allocation.index,),
            )
            return


def _check_places(joined: JoinedDump) -> Iterator[Finding]:
    first: dict[ValueId, PlacedValue] = {}
    for placed in joined.placed:
        other = first.setdefault(placed.id, placed)
        if other is not placed:
            yield Finding(
                rule="completeness/two-places",
                message=f"value {placed.id} ({display_name(placed.value)}) has two places",
                values=as_evidence(other, placed),
                allocations=(other.allocation.index, placed.allocation.index),
            )
    elders: dict[tuple[str, ShapeIndex], PlacedValue] = {}
    for placed in first.values():
        elder = elders.setdefault((placed.value.name, placed.index), placed)
        if elder is not placed:
            yield Finding(
                rule="completeness/two-values-of-one-name",
                message=f"{display_name(placed.value)} is the name of two values",
                values=as_evidence(elder, placed),
                allocations=(placed.allocation.index,),
            )


def _check_used_values(joined: JoinedDump) -> Iterator[Finding]:
    assert joined.dump.values is not None
    placed_ids = {placed.id for placed in joined.placed}
    used_ids = Counter([value.id for value in joined.dump.values.values])
    for value in joined.dump.values.values:
        shown = ValueEvidence(id=value.id, name=display_name(value))
        if value.id not in placed_ids:
            yield Finding(
                rule="completeness/no-place",
                message=f"{shown.name} (value {value.id}) has no place in any allocation",
                values=(shown,),
            )
        if used_ids[value.id] > 1:
            yield Finding(
                rule="completeness/listed-twice",
                message=f"value {value.id} ({shown.name}) is listed twice among the used values",
                values=(shown,),
            )
    for placed in joined.placed:
        if placed.used is None:
            yield value_finding(
                placed, "completeness/unknown-value", "is not among the used values"
            )
        elif not _is_same(placed.used, placed.value):
            problem = f"is {_heading(placed.used)} among the used values"
            yield value_finding(placed, "completeness/value-differs", problem)


def _is_same(one: Value, other: Value) -> bool:
    """Whether both lists print one heading."""
    return (
        one.name == other.name
        and one.index == other.index
        and one.is_phi == other.is_phi
        and one.color == other.color
    )


def _heading(value: Value) -> str:
    """The heading of a value, as far as both lists print it."""
    return f"{display_name(value)}{' (phi)' if value.is_phi else ''} @{value.color}"


def _check_live_ranges(joined: JoinedDump) -> Iterator[Finding]:
    live = joined.dump.live_ranges
    assert live is not None
    known = {(placed.value.name, placed.index) for placed in joined.placed}
    counts = Counter([(life.instruction, life.index) for life in live.ranges])
    for key, count in counts.items():
        name = key[0] + "{" + ",".join(map(str, key[1])) + "}"
        if key not in known and joined.dump.assignment is not None:
            yield Finding(
                rule="completeness/no-place",
                message=f"{name} is alive, but has no place in any allocation",
            )
        if count > 1:
            yield Finding(
                rule="completeness/listed-twice", message=f"{name} has {count} live ranges"
            )
    for placed in joined.placed:
        # What is inside a fusion or a reduction is not in the sequence and has no live range.
        if placed.life is None and placed.value.name in joined.time_of:
            yield value_finding(placed, "completeness/no-live-range", "has no live range")


def _check_sequence(joined: JoinedDump) -> Iterator[Finding]:
    live = joined.dump.live_ranges
    assert live is not None
    for name, count in Counter(live.sequence).items():
        if count > 1:
            yield Finding(
                rule="completeness/listed-twice",
                message=f"{name} appears {count} times in the sequence",
            )
    if live.end != len(live.sequence):
        yield Finding(
            rule="totals/sequence-length",
            message=f"the sequence has {len(live.sequence)} steps, its head says {live.end}",
        )


def check_texts(joined: JoinedDump, known: Container[str]) -> Iterator[Finding]:
    """The printed instructions agree with the shapes, uses and positions the dump lists.

    An operand lists the instruction as a use, that of a tuple as a position. Those whose names are
    `known` are looked up in the module instead.
    """
    listed: dict[int, set[tuple[str, int | None, ShapeIndex]]] = {}
    texts = {name: text for name, text in joined.printed.items() if name not in known}
    for placed in joined.placed:
        if placed.value.name in texts:
            yield from _check_shape(placed, texts[placed.value.name])
    for name, text in texts.items():
        is_tuple = text.opcode == "tuple"
        for number, operand in enumerate(text.operands):
            if operand in joined.time_of and operand not in joined.indices_at:
                message = f"{operand} is operand {number} of {name}, but no value is there"
                yield Finding(rule="flow/no-value", message=message)
            for index in joined.indices_at.get(operand, ()):
                wanted = (name, None, (number, *index)) if is_tuple else (name, number, index)
                for placed in joined.values_at[operand, index]:
                    if placed.id not in listed and placed.used:
                        listed[placed.id] = _listed(placed.used)
                    if wanted not in listed[placed.id] and not (index and text.opcode == "copy"):
                        rule = "flow/position-missing" if is_tuple else "flow/use-missing"
                        yield value_finding(placed, rule, f"is operand {number} of {name}")


def _check_shape(placed: PlacedValue, text: PrintedInstruction) -> Iterator[Finding]:
    whole = parse_shape_or_none(text.shape_text)
    if whole is not None:
        shape = whole.optional_subshape(placed.index)
        if str(shape) != placed.value.shape:
            yield value_finding(
                placed, "flow/shape-differs", f"has the shape {shape} in its instruction"
            )


def _listed(used: UsedValue) -> set[tuple[str, int | None, ShapeIndex]]:
    """The positions of a value, and its uses with their operand numbers."""
    positions = {(position.instruction, None, position.index or ()) for position in used.positions}
    uses = {(use.instruction, use.operand, use.index or ()) for use in used.uses or ()}
    return positions | uses
