"""How often loops run: as XLA wrote it in their text, else by running through their counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.patterns import lazy_pattern
from hlomem.opt.constants import MAX_TRIPS, MIN_TRIPS
from hlomem.opt.orders.scalars import find_integers, is_integer, scalars_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.ir import HloInstruction

_TRIP_COUNT = lazy_pattern(r'"known_trip_count":\{"n":"(\d{1,9})"\}')


def trip_count(loop: HloInstruction) -> int:
    """The passes of a loop; one where they are not known."""
    found = _TRIP_COUNT.search(loop.attribute_text)
    return int(found[1]) if found else count_trips(loop) or 1


def count_trips(instruction: HloInstruction) -> int | None:
    """How often a loop runs, by its counter; None where that is not known, or very often."""
    [initial] = instruction.operands
    body, condition = instruction.called_computations
    if initial.opcode != "tuple" or body.root.opcode != "tuple":
        return None
    elements = elements_of(body.parameters[0])
    asked = elements_of(condition.parameters[0])
    if elements is None or asked is None:
        return None
    ticks = run_through(instruction, instruction, elements, asked)
    return None if ticks is None else len(ticks)


def elements_of(
    whole: HloInstruction, *, may_be_root: bool = False
) -> dict[int, tuple[HloInstruction, ...]] | None:
    """Those that take each element of a tuple; None where somebody takes the tuple whole."""
    found: dict[int, tuple[HloInstruction, ...]] = {}
    if whole.is_root:
        return None
    for user in whole.users:
        if user.opcode != "get-tuple-element" or (user.is_root and not may_be_root):
            return None
        index = user.tuple_index
        found[index] = (*found.get(index, ()), user)
    return found


def run_through(
    instruction: HloInstruction,
    repeats: HloInstruction,
    elements: Mapping[int, tuple[HloInstruction, ...]],
    asked: Mapping[int, tuple[HloInstruction, ...]],
) -> list[dict[HloInstruction, int]] | None:
    """The integers of each iteration; None where their number is not known, or large."""
    body, condition = repeats.called_computations
    parent = instruction.parent.instructions
    outside = find_integers(filter(is_integer, parent[: instruction.index]), {})
    initial = instruction.operands[0].operands
    state = {index: outside[operand] for index, operand in enumerate(initial) if operand in outside}
    in_body, in_condition = scalars_of(body), scalars_of(condition)
    ticks: list[dict[HloInstruction, int]] = []
    while len(ticks) <= MAX_TRIPS:
        goes_on = find_integers(in_condition, _given(asked, state)).get(condition.root)
        if goes_on is None:
            return None
        if not goes_on:
            return ticks if len(ticks) >= MIN_TRIPS else None
        tick = find_integers(in_body, _given(elements, state))
        ticks.append(tick)
        state = {
            index: tick[operand]
            for index, operand in enumerate(body.root.operands)
            if operand in tick
        }
    return None


def _given(
    elements: Mapping[int, tuple[HloInstruction, ...]], state: Mapping[int, int]
) -> dict[HloInstruction, int]:
    return {
        element: state[index]
        for index, taken in elements.items()
        for element in taken
        if index in state
    }
