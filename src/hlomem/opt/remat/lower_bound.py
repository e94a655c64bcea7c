"""Bytes that no order and no recomputation go below: what a single instruction needs at once.

Left out is what may be written over an operand, could lie in the memory of an unrelated result, or
is passed on by loops, conditionals and calls: the floor is never too high, but may be too low.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.opcodes import RUN_IN_PLACE
from hlomem.opt.orders.effects import takes_time
from hlomem.opt.orders.flow import FlowBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hlomem.opt.orders.flow import Flow
    from hlomem.pipeline import Stages


class Floor(NamedTuple):
    """The least that the temporaries of a program take."""

    size: int
    """Bytes."""
    instruction: str
    """The name of the instruction of the entry that needs them; empty where nothing does."""


def find_floor(stages: Stages) -> Floor:
    """The floor of a program's temporaries."""
    flow = FlowBuilder(stages).build(stages.module.entry, {})
    handed_on = {
        number
        for number, buffer in enumerate(flow.buffers)
        for value in buffer.values
        if any(position.instruction.opcode in RUN_IN_PLACE for position in value.positions)
        or value.instruction.parent is not flow.computation
    }
    floor = Floor(0, "")
    for node, instruction in enumerate(flow.nodes):
        if instruction.opcode in RUN_IN_PLACE or not takes_time(instruction):
            continue
        touched = {
            flow.values[value].buffer for value in (*flow.made_by[node], *flow.read_by[node])
        }
        shared = {flow.values[value].buffer for value, _ in flow.shares.get(node, ())}
        needed = touched - shared - handed_on
        size = sum(flow.sizes[buffer] for buffer in needed)
        if size > floor.size:
            size -= _borrowed(flow, node, needed)
        if size > floor.size:
            floor = Floor(size, instruction.name)
    return floor


def _borrowed(flow: Flow, node: int, needed: Iterable[int]) -> int:
    """The most bytes that may lie in memory of results while a node runs, one buffer in each."""
    free: list[int] = []
    over: set[int] = set()
    for lender in flow.lenders:
        if any(value.made_by == node or node in value.readers for value in lender.values):
            for meets in lender.meets:
                over.update([flow.values[value].buffer for value in meets])
        else:
            free.append(lender.size)
    free.sort()
    borrowed = 0
    for buffer in sorted(needed, key=lambda buffer: -flow.sizes[buffer]):
        size = flow.sizes[buffer]
        place = next((place for place, room in enumerate(free) if room >= size), None)
        if buffer in over:
            borrowed += size
        elif place is not None:
            del free[place]
            borrowed += size
    return borrowed
