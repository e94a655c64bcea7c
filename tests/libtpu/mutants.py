"""BufferAssignmentProtos with one thing wrong."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from hlomem.proto.schema import parse_message

Mutate = Callable[[Any, Random], bool]
"""Changes one thing in a plan; False where there is nothing to change."""


def _several(plan: Any, colors: tuple[int, ...]) -> list[Any]:
    return [
        each for each in plan.buffer_allocations if each.color in colors and len(each.assigned) > 1
    ]


def _moved(colors: tuple[int, ...]) -> Mutate:
    """A value lies where another one of its allocation does."""

    def mutate(plan: Any, random: Random) -> bool:
        found = _several(plan, colors)
        if not found:
            return False
        one, two = random.sample(list(random.choice(found).assigned), 2)
        one.offset = two.offset
        return True

    return mutate


def _all_at_zero(colors: tuple[int, ...]) -> Mutate:
    def mutate(plan: Any, random: Random) -> bool:
        found = _several(plan, colors)
        for place in random.choice(found).assigned if found else ():
            place.offset = 0
        return bool(found)

    return mutate


def _swapped(plan: Any, random: Random) -> bool:
    found = _several(plan, (0, 1))
    if not found:
        return False
    one, two = random.sample(list(random.choice(found).assigned), 2)
    one.offset, two.offset = two.offset, one.offset
    return True


def _misaligned(plan: Any, random: Random) -> bool:
    places = [place for each in _several(plan, (0, 1)) for place in each.assigned if place.size]
    if not places:
        return False
    random.choice(places).offset += 8
    return True


def _past_the_end(plan: Any, random: Random) -> bool:
    found = _several(plan, (0, 1))
    if not found:
        return False
    allocation = random.choice(found)
    random.choice(list(allocation.assigned)).offset = allocation.size
    return True


def _too_small(plan: Any, random: Random) -> bool:
    found = [each for each in plan.buffer_allocations if each.size > 1024]
    random.choice(found).size -= 1024
    return True


def _left_out(plan: Any, random: Random) -> bool:
    found = _several(plan, (0, 1))
    if not found:
        return False
    allocation = random.choice(found)
    del allocation.assigned[random.randrange(len(allocation.assigned))]
    return True


def _into_a_parameter(plan: Any, random: Random) -> bool:
    """A temporary moves into memory that the caller still owns."""
    homes = [
        each
        for each in plan.buffer_allocations
        if each.is_entry_computation_parameter and not each.color and not each.maybe_live_out
    ]
    found = [
        (each, place) for each in _several(plan, (0,)) for place in each.assigned if place.size
    ]
    found = [(each, place) for each, place in found if not each.is_entry_computation_parameter]
    pairs = [(each, place, home) for each, place in found for home in homes]
    pairs = [pair for pair in pairs if pair[1].size <= pair[2].size]
    if not pairs:
        return False
    allocation, place, home = random.choice(pairs)
    moved = home.assigned.add()
    moved.CopyFrom(place)
    moved.offset = 0
    allocation.assigned.remove(place)
    return True


def _out_of_a_donation(plan: Any, random: Random) -> bool:
    """A result leaves the memory of the argument it was to overwrite."""
    donated = [
        each
        for each in plan.buffer_allocations
        if each.is_parameter_aliased_with_output and len(each.assigned) > 1 and not each.color
    ]
    homes = [
        each
        for each in plan.buffer_allocations
        if not each.color and not each.is_entry_computation_parameter and not each.maybe_live_out
    ]
    if not donated or not homes:
        return False
    allocation, home = random.choice(donated), max(homes, key=lambda each: each.size)
    last = list(allocation.assigned)[-1]
    moved = home.assigned.add()
    moved.CopyFrom(last)
    moved.offset = -(-home.size // 16384) * 16384
    home.size = moved.offset + moved.size
    home.maybe_live_out, allocation.maybe_live_out = True, False
    allocation.assigned.remove(last)
    return True


MUTANTS: dict[str, Mutate] = {
    "an HBM value where another lies": _moved((0,)),
    "a VMEM value where another lies": _moved((1,)),
    "a sync flag where another lies": _moved((2,)),
    "all HBM values at 0": _all_at_zero((0,)),
    "all VMEM values at 0": _all_at_zero((1,)),
    "all sync flags at 0": _all_at_zero((2,)),
    "two values swapped": _swapped,
    "a value off its alignment": _misaligned,
    "a value past the end": _past_the_end,
    "an allocation too small": _too_small,
    "a value without memory": _left_out,
    "a temporary in an argument's memory": _into_a_parameter,
    "a result out of its donated memory": _out_of_a_donation,
}
ALWAYS_HARMFUL = frozenset(
    {
        "a value off its alignment",
        "a value past the end",
        "an allocation too small",
        "a value without memory",
        "a result out of its donated memory",
    }
)
"""Whatever is chosen, the plan is no plan any more; of others the oracle of faults tells."""


def mutant(plan: bytes, kind: str, random: Random) -> bytes | None:
    """The plan with one thing wrong; None where it has nothing of the kind."""
    message = parse_message("BufferAssignment", plan)
    if not MUTANTS[kind](message, random):
        return None
    changed: bytes = message.SerializeToString(deterministic=True)
    return None if changed == plan else changed
