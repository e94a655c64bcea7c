"""No entry is missing or repeated: ids, allocation numbers, slices, live ranges."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hlomem.check.evidence import as_evidence, value_finding
from hlomem.check.findings import Finding, ValueEvidence
from hlomem.view.joined import JoinedDump, PlacedValue, display_name
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from hlomem.base.quantities import ValueId
    from hlomem.dump.records import LiveRanges, ShapeIndex, UsedValue
    from hlomem.view.instruction_line import PrintedInstruction


def check_completeness(joined: JoinedDump) -> Iterator[Finding]:
    yield from _check_allocation_numbers(joined)
    yield from _check_slices(joined)
    if joined.dump.values is not None:
        yield from _check_used_values(joined)
    if joined.dump.live_ranges is not None:
        yield from _check_live_ranges(joined)
        yield from _check_sequence(joined)


def _check_allocation_numbers(joined: JoinedDump) -> Iterator[Finding]:
    for expected, allocation in enumerate(joined.allocations):
        if allocation.index != expected:
            yield Finding(
                "completeness/allocation-number",
                f"allocation {allocation.index} is listed where {expected} should be",
                allocations=(allocation.index,),
            )
            return


def _check_slices(joined: JoinedDump) -> Iterator[Finding]:
    if len(joined.placed_by_id) == len(joined.placed_by_name) == len(joined.placed):
        return  # as in all dumps by XLA
    first: dict[ValueId, PlacedValue] = {}
    for placed in joined.placed:
        other = first.setdefault(placed.id, placed)
        if other is not placed:
            yield Finding(
                "completeness/two-places",
                f"value {placed.id} ({display_name(placed.value)}) is placed twice",
                values=as_evidence(other, placed),
                allocations=(other.allocation.index, placed.allocation.index),
            )
    elders: dict[tuple[str, ShapeIndex], PlacedValue] = {}
    for placed in first.values():
        elder = elders.setdefault((placed.value.name, placed.index), placed)
        if elder is not placed:
            yield Finding(
                "completeness/two-values-of-one-name",
                f"{display_name(placed.value)} is the name of two values",
                values=as_evidence(elder, placed),
                allocations=(placed.allocation.index,),
            )


def _check_used_values(joined: JoinedDump) -> Iterator[Finding]:
    assert joined.dump.values is not None
    placed_ids = joined.placed_by_id
    has_twins = len(joined.used_by_id) < len(joined.used)
    counts = Counter([value.id for value in joined.used]) if has_twins else {}
    for value in joined.used:
        if value.id in placed_ids and not has_twins:
            continue
        shown = ValueEvidence(id=value.id, name=display_name(value))
        if value.id not in placed_ids:
            yield Finding(
                "completeness/no-place",
                f"{shown.name} (value {value.id}) is not in any allocation",
                values=(shown,),
            )
        if counts.get(value.id, 1) > 1:
            yield Finding(
                "completeness/listed-twice",
                f"value {value.id} ({shown.name}) is listed twice among the used values",
                values=(shown,),
            )
    yield from _check_headings(joined)


def _check_headings(joined: JoinedDump) -> Iterator[Finding]:
    """Both lists print the same heading of a value."""
    for placed in joined.placed:
        value, used = placed.value, placed.used
        if used is None:
            yield value_finding(
                placed, "completeness/unknown-value", "is not among the used values"
            )
        elif (
            used.name != value.name
            or used.index != value.index
            or used.is_phi != value.is_phi
            or used.color != value.color
        ):
            heading = f"{display_name(used)}{' (phi)' if used.is_phi else ''} @{used.color}"
            problem = f"is {heading} among the used values"
            yield value_finding(placed, "completeness/value-differs", problem)


def _check_live_ranges(joined: JoinedDump) -> Iterator[Finding]:
    live = joined.dump.live_ranges
    assert live is not None
    placed_lives = sum([placed.life is not None for placed in joined.placed])
    has_no_twins = len(joined.placed_by_name) == len(joined.placed)
    if not (has_no_twins and placed_lives == len(joined.life_of) == len(live.ranges)):
        yield from _check_listed_ranges(joined, live)
    time_of = joined.time_of
    for placed in joined.placed:
        # Values inside fusions and reductions are not in the sequence and have no live range.
        if placed.life is None and placed.value.name in time_of:
            yield value_finding(placed, "completeness/no-live-range", "has no live range")


def _check_listed_ranges(joined: JoinedDump, live: LiveRanges) -> Iterator[Finding]:
    """Each live range belongs to a different value in an allocation."""
    known = joined.placed_by_name
    counts = Counter([(life.instruction, life.index) for life in live.ranges])
    for key, count in counts.items():
        name = key[0] + "{" + ",".join(map(str, key[1])) + "}"
        if key not in known and joined.dump.assignment is not None:
            yield Finding("completeness/no-place", f"{name} is alive, but not in any allocation")
        if count > 1:
            yield Finding("completeness/listed-twice", f"{name} has {count} live ranges")


def _check_sequence(joined: JoinedDump) -> Iterator[Finding]:
    live = joined.dump.live_ranges
    assert live is not None
    for name, count in Counter(live.sequence).items():
        if count > 1:
            yield Finding(
                "completeness/listed-twice", f"{name} appears {count} times in the sequence"
            )
    if live.end != len(live.sequence):
        yield Finding(
            "totals/sequence-length",
            f"the sequence has {len(live.sequence)} steps, its head says {live.end}",
        )


def check_texts(joined: JoinedDump, known: Container[str]) -> Iterator[Finding]:
    """Instructions that are not `known` to the module agree with the listed shapes and uses."""
    listed: dict[int, set[tuple[str, int | None, ShapeIndex]]] = {}
    time_of, indices_at, values_at = joined.time_of, joined.indices_at, joined.values_at
    texts = {name: text for name, text in joined.printed.items() if name not in known}
    for placed in joined.placed:
        if placed.value.name in texts:
            yield from _check_shape(placed, texts[placed.value.name])
    for name, text in texts.items():
        is_tuple = text.opcode == "tuple"
        for number, operand in enumerate(text.operands):
            if operand in time_of and operand not in indices_at:
                message = f"{operand} is operand {number} of {name}, but no value is there"
                yield Finding("flow/no-value", message)
            for index in indices_at.get(operand, ()):
                wanted = (name, None, (number, *index)) if is_tuple else (name, number, index)
                for placed in values_at[operand, index]:
                    if not is_tuple and _is_only_use(placed.used, wanted):
                        continue
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


def _is_only_use(used: UsedValue | None, wanted: tuple[str, int | None, ShapeIndex]) -> bool:
    uses = used.uses if used is not None else None
    if not uses or len(uses) > 1:
        return False
    return (uses[0].instruction, uses[0].operand, uses[0].index or ()) == wanted


def _listed(used: UsedValue) -> set[tuple[str, int | None, ShapeIndex]]:
    positions = {(position.instruction, None, position.index or ()) for position in used.positions}
    uses = {(use.instruction, use.operand, use.index or ()) for use in used.uses or ()}
    return positions | uses
