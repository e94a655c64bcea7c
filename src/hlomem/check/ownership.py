"""Whose an allocation is: the caller's, the program's constants, one thread's.

A parameter that is not donated and a constant are read-only (`BufferAllocation::is_readonly`);
what the program returns lies in allocations that outlive it; thread-local ones hold what is
inside a fusion or a reduction, which is in no sequence.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from hlomem.check.evidence import about, involve
from hlomem.check.findings import Finding
from hlomem.view.guess_machine import parse_shape_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.dump.records import Allocation
    from hlomem.view.joined import Placed, Plan

_NUMBER = re.compile(r" parameter\((\d+)\)")


def check_ownership(plan: Plan) -> Iterator[Finding]:
    """Every rule about inputs, outputs, constants and thread-local allocations."""
    yield from _check_headers(plan)
    for placed in plan.placed:
        yield from _check_read_only(plan, placed)
        yield from _check_thread_local(plan, placed)
    yield from _check_neighbours(plan)
    yield from _check_outputs(plan)


def _check_headers(plan: Plan) -> Iterator[Finding]:
    holders: dict[tuple[int, tuple[int, ...]], Allocation] = {}
    outputs = [each for each in plan.allocations if each.output_shape is not None]
    for allocation in plan.allocations:
        if allocation.parameter is None:
            continue
        key = (allocation.parameter.number, allocation.parameter.index)
        other = holders.setdefault(key, allocation)
        if other is not allocation:
            message = f"parameter {key[0]} has two allocations"
            yield Finding(
                rule="ownership/parameter",
                message=message,
                allocations=(other.index, allocation.index),
            )
    for allocation in outputs:
        if not allocation.maybe_live_out:
            message = f"allocation {allocation.index} holds the output, but may not live out"
            yield Finding(rule="ownership/output", message=message, allocations=(allocation.index,))
    if len(outputs) > 1:
        message = f"{len(outputs)} allocations say that they hold the output"
        numbers = tuple(each.index for each in outputs)
        yield Finding(rule="ownership/output", message=message, allocations=numbers)


def _check_read_only(plan: Plan, placed: Placed) -> Iterator[Finding]:
    allocation, text = placed.allocation, plan.text_of.get(placed.value.name)
    if text is None:
        return
    if allocation.is_constant and text.opcode != "constant":
        yield about(placed, "ownership/read-only", "is written into a constant")
    if text.opcode == "constant" and not allocation.is_constant:
        yield about(placed, "ownership/constant", "is a constant, its allocation is not")
    if allocation.parameter is None:
        if (
            text.opcode == "parameter"
            and placed.value.name in plan.time_of
            and not placed.value.is_phi
        ):
            yield about(placed, "ownership/parameter", "is an argument, its allocation is not")
        return
    if text.opcode != "parameter":
        if not allocation.maybe_live_out:
            yield about(
                placed, "ownership/read-only", "is written into an argument that is not donated"
            )
    elif placed.index == allocation.parameter.index:
        yield from _check_parameter(placed)


def _check_parameter(placed: Placed) -> Iterator[Finding]:
    """The value of an entry parameter fills the allocation of that parameter."""
    parameter = placed.allocation.parameter
    assert parameter is not None
    assert placed.used is not None
    number = _NUMBER.search(placed.used.instruction)
    if number is None or placed.value.is_phi:
        return
    if int(number.group(1)) != parameter.number:
        problem = f"is parameter {number.group(1)}, its allocation parameter {parameter.number}"
        yield about(placed, "ownership/parameter", problem)
    shape = parse_shape_or_none(placed.value.shape)
    if shape is not None and shape.text_without_layout != parameter.shape:
        yield about(
            placed, "ownership/parameter", f"is no {parameter.shape}, as its allocation says"
        )
    if placed.value.offset != 0:
        yield about(
            placed, "ownership/parameter", "is an argument, but not at the start of its allocation"
        )


def _check_thread_local(plan: Plan, placed: Placed) -> Iterator[Finding]:
    is_scheduled = placed.value.name in plan.time_of
    if placed.allocation.is_thread_local and is_scheduled:
        yield about(
            placed, "ownership/thread-local", "is in the sequence, its allocation thread-local"
        )
    elif (
        plan.sequence
        and not is_scheduled
        and not placed.allocation.is_thread_local
        and not placed.allocation.is_constant
    ):
        yield about(
            placed, "ownership/thread-local", "is in no sequence, its allocation not thread-local"
        )


def _check_neighbours(plan: Plan) -> Iterator[Finding]:
    """Constants and what is thread-local share no byte, whenever they live.

    Constants are there before the program starts; when something inside a reduction lives is not
    printed. Only what is thread-local may be written in place, over what it reads.
    """
    holders: dict[int, list[Placed]] = {}
    for placed in plan.placed:
        is_timeless = placed.allocation.is_constant or placed.allocation.is_thread_local
        if is_timeless and placed.value.size > 0:
            holders.setdefault(placed.allocation.index, []).append(placed)
    for values in holders.values():
        for one, two in pairwise(sorted(values, key=lambda each: (each.start, each.id))):
            if one.shares_bytes_with(two) and not _is_in_place(one, two):
                involved = involve(one, two)
                is_constant = one.allocation.is_constant
                yield Finding(
                    rule="ownership/constant" if is_constant else "ownership/thread-local",
                    message=f"{involved[0].name} and {involved[1].name} share bytes",
                    values=involved,
                    allocations=(one.allocation.index,),
                )


def _is_in_place(one: Placed, two: Placed) -> bool:
    reads = one.operand_numbers(two.value.name) or two.operand_numbers(one.value.name)
    return one.allocation.is_thread_local and one.slice == two.slice and bool(reads)


def _check_outputs(plan: Plan) -> Iterator[Finding]:
    """Each part of the output is an allocation of its own, which outlives the program."""
    output = plan.output
    if output is None:
        return
    name, parts = output.value.name, [output.index]
    if output.value.index == ():
        parts = plan.indices_at.get(name, [])
        shape = parse_shape_or_none(output.value.shape)
        if shape is not None and shape.text_without_layout != output.allocation.output_shape:
            problem = f"is returned, but is no {output.allocation.output_shape}"
            yield about(output, "ownership/output", problem)
    for placed in [each for index in parts for each in plan.values_at.get((name, index), ())]:
        allocation = placed.allocation
        if not allocation.maybe_live_out:
            problem = "is returned, but its allocation may not live out"
            yield about(placed, "ownership/output", problem)
        if placed.value.offset != 0:
            problem = "is returned, but not at the start of its allocation"
            yield about(placed, "ownership/output", problem)
