"""Rules for arguments, results, constants and threads (`BufferAllocation::is_readonly`)."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from hlomem.check.evidence import as_evidence, value_finding
from hlomem.check.findings import Finding
from hlomem.check.registers import in_registers
from hlomem.view.shapes import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.base.quantities import ParameterNumber
    from hlomem.dump.records import Allocation
    from hlomem.view.joined import JoinedDump, PlacedValue


def check_ownership(joined: JoinedDump) -> Iterator[Finding]:
    yield from _check_headers(joined)
    unchanging, kept = _unchanging(joined), in_registers(joined)
    for placed in joined.placed:
        if placed.id not in kept and not _is_plain(joined, placed):
            yield from _check_read_only(joined, placed, unchanging)
            yield from _check_thread_local(joined, placed)
    yield from _check_neighbours(joined, unchanging, kept)
    yield from _check_outputs(joined)


def _is_plain(joined: JoinedDump, placed: PlacedValue) -> bool:
    """Whether a value is an ordinary temporary, to which the rules below do not apply."""
    allocation, name = placed.allocation, placed.value.name
    if allocation.parameter is not None or allocation.is_constant:
        return False
    is_scheduled = name in joined.time_of
    if is_scheduled is allocation.is_thread_local:
        return False
    text = joined.printed.get(name)
    if text is None or text.opcode == "constant":
        return text is None
    return not is_scheduled or text.opcode != "parameter"


def _check_headers(joined: JoinedDump) -> Iterator[Finding]:
    holders: dict[tuple[ParameterNumber, tuple[int, ...]], Allocation] = {}
    outputs = [found for found in joined.allocations if found.output_shape is not None]
    for allocation in joined.allocations:
        if allocation.parameter is None:
            continue
        key = (allocation.parameter.number, allocation.parameter.index)
        other = holders.setdefault(key, allocation)
        if other is not allocation:
            yield Finding(
                "ownership/parameter",
                f"parameter {key[0]} has two allocations",
                allocations=(other.index, allocation.index),
            )
    for allocation in outputs:
        if not allocation.maybe_live_out:
            message = f"allocation {allocation.index} holds the output, but may not live out"
            yield Finding("ownership/output", message, allocations=(allocation.index,))
    if len(outputs) > 1:
        message = f"{len(outputs)} allocations claim to hold the output"
        numbers = tuple(allocation.index for allocation in outputs)
        yield Finding("ownership/output", message, allocations=numbers)


def _unchanging(joined: JoinedDump) -> set[int]:
    """The allocations of constants that a loop carries and writes, but never changes.

    They hold only that constant, equal ones, or copies. `alias/torn` reports phis of the loop at
    other slices.
    """
    made: dict[int, set[str | None]] = {}
    for placed in joined.placed:
        if placed.allocation.is_constant and not placed.value.is_phi:
            literal = _literal(joined, placed.value.name)
            is_whole = placed.start == 0 and placed.value.size == placed.allocation.size
            made.setdefault(placed.allocation.index, set()).add(literal if is_whole else None)
    return {index for index, texts in made.items() if len(texts) == 1 and None not in texts}


def _literal(joined: JoinedDump, name: str) -> str | None:
    """The constant that an instruction is, or copies; None if unknown."""
    text = joined.printed.get(name)
    if text is not None and text.opcode == "copy":
        text = joined.printed.get(text.operands[0])
    found = _CONSTANT.search(text.text) if text is not None and text.opcode == "constant" else None
    return None if found is None or text is None else f"{text.shape.text_without_layout} {found[1]}"


_CONSTANT = re.compile(r" constant\(([-+.\w]*)\)", re.ASCII)


def _check_read_only(
    joined: JoinedDump, placed: PlacedValue, unchanging: set[int]
) -> Iterator[Finding]:
    allocation, text = placed.allocation, joined.printed.get(placed.value.name)
    if text is None:
        return
    if (
        allocation.is_constant
        and text.opcode != "constant"
        and not (allocation.index in unchanging and (placed.value.is_phi or text.opcode == "copy"))
    ):
        yield value_finding(placed, "ownership/read-only", "is written into a constant")
    if text.opcode == "constant" and not allocation.is_constant:
        yield value_finding(placed, "ownership/constant", "is a constant, its allocation is not")
    if allocation.parameter is None:
        is_argument = text.opcode == "parameter" and placed.value.name in joined.time_of
        if is_argument and not placed.value.is_phi:
            problem = "is an argument, its allocation is not"
            yield value_finding(placed, "ownership/parameter", problem)
    elif text.opcode != "parameter":
        if not allocation.maybe_live_out:
            problem = "is written into an argument that is not donated"
            yield value_finding(placed, "ownership/read-only", problem)
    elif placed.index == allocation.parameter.index:
        yield from _check_parameter(placed, text.number)


def _check_parameter(placed: PlacedValue, number: int | None) -> Iterator[Finding]:
    """The value of an entry parameter fills the allocation of that parameter."""
    parameter = placed.allocation.parameter
    assert parameter is not None
    if number is None or placed.value.is_phi:
        return
    if number != parameter.number:
        problem = f"is parameter {number}, its allocation parameter {parameter.number}"
        yield value_finding(placed, "ownership/parameter", problem)
    shape = parse_shape_or_none(placed.value.shape)
    if shape is not None and shape.text_without_layout != parameter.shape:
        problem = f"is not the {parameter.shape} of its allocation"
        yield value_finding(placed, "ownership/parameter", problem)
    if placed.value.offset != 0:
        problem = "is an argument, but not at the start of its allocation"
        yield value_finding(placed, "ownership/parameter", problem)


def _check_thread_local(joined: JoinedDump, placed: PlacedValue) -> Iterator[Finding]:
    is_scheduled, allocation = placed.value.name in joined.time_of, placed.allocation
    if allocation.is_thread_local and is_scheduled:
        problem = "is in the sequence, its allocation thread-local"
        yield value_finding(placed, "ownership/thread-local", problem)
    is_local = allocation.is_thread_local or allocation.is_constant
    if not is_scheduled and not is_local and joined.sequence:
        problem = "is in no sequence, its allocation not thread-local"
        yield value_finding(placed, "ownership/thread-local", problem)


def _check_neighbours(
    joined: JoinedDump, unchanging: set[int], kept: frozenset[int]
) -> Iterator[Finding]:
    """Constants and thread-local values share no bytes, whatever their live ranges.

    Constants exist before the program starts, and live ranges inside a reduction are not printed.
    Only thread-local values may overwrite their operands, and only a loop-carried constant may be
    written with itself.
    """
    holders: dict[int, list[PlacedValue]] = {}
    for placed in joined.placed:
        allocation = placed.allocation
        if not (allocation.is_constant or allocation.is_thread_local):
            continue
        is_checked = allocation.index not in unchanging
        if is_checked and placed.value.size > 0 and placed.id not in kept:
            holders.setdefault(allocation.index, []).append(placed)
    for values in holders.values():
        for one, two in pairwise(sorted(values, key=lambda placed: (placed.start, placed.id))):
            if one.shares_bytes_with(two) and not _is_in_place(one, two):
                involved = as_evidence(one, two)
                is_constant = one.allocation.is_constant
                yield Finding(
                    "ownership/constant" if is_constant else "ownership/thread-local",
                    f"{involved[0].name} and {involved[1].name} share bytes",
                    values=involved,
                    allocations=(one.allocation.index,),
                )


def _is_in_place(one: PlacedValue, two: PlacedValue) -> bool:
    is_same = one.allocation.is_thread_local and one.slice == two.slice
    return is_same and one.reads_or_feeds(two)


def _check_outputs(joined: JoinedDump) -> Iterator[Finding]:
    """Each part of the output has its own allocation, which outlives the program."""
    output = joined.output
    if output is None:
        return
    name, parts = output.value.name, [output.index]
    if output.value.index == ():
        parts = joined.indices_at.get(name, [])
        shape = parse_shape_or_none(output.value.shape)
        if shape is not None and shape.text_without_layout != output.allocation.output_shape:
            problem = f"is returned, but is not a {output.allocation.output_shape}"
            yield value_finding(output, "ownership/output", problem)
    for placed in [value for index in parts for value in joined.values_at.get((name, index), ())]:
        allocation = placed.allocation
        if not allocation.maybe_live_out:
            problem = "is returned, but its allocation may not live out"
            yield value_finding(placed, "ownership/output", problem)
        if placed.value.offset != 0:
            problem = "is returned, but not at the start of its allocation"
            yield value_finding(placed, "ownership/output", problem)
