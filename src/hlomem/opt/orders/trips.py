"""How often loops run: as XLA wrote it in their text, else by running through their counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.patterns import lazy_pattern
from hlomem.opt.constants import MAX_TRIPS, MIN_TRIPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.opcodes import Opcode

MAX_DEPTH = 4
"""Fusions within fusions that are looked into."""
_LEAST_OF = {"pred": 0, "s32": -(1 << 31), "s64": -(1 << 31), "u32": 0, "u64": 0}
"""By type the least number that is known; below, and above the most, it may wrap around."""
_UNKNOWN = 1 << 40
"""Instead of a quotient that is not computed: above the most."""
_OPERATIONS: Mapping[Opcode, Callable[..., int]] = {
    "add": lambda one, other: one + other,
    "and": lambda one, other: one & other,
    "bitcast": lambda only: only,
    "copy": lambda only: only,
    "divide": lambda one, other: one // other if one >= 0 < other else _UNKNOWN,
    "maximum": max,
    "minimum": min,
    "multiply": lambda one, other: one * other,
    "negate": lambda only: -only,
    "or": lambda one, other: one | other,
    "reshape": lambda only: only,
    "select": lambda which, one, other: one if which else other,
    "subtract": lambda one, other: one - other,
}
_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "EQ": lambda one, other: one == other,
    "GE": lambda one, other: one >= other,
    "GT": lambda one, other: one > other,
    "LE": lambda one, other: one <= other,
    "LT": lambda one, other: one < other,
    "NE": lambda one, other: one != other,
}
_MAX_INT32 = (1 << 31) - 1


def is_integer(instruction: HloInstruction) -> bool:
    shape = instruction.shape
    return not shape.is_tuple and not shape.dimensions and shape.element_type.text in _LEAST_OF


def scalars_of(computation: HloComputation) -> list[HloInstruction]:
    """The instructions of a computation that may be known integers, in their order."""
    return [instruction for instruction in computation.instructions if is_integer(instruction)]


def find_integers(
    scalars: Iterable[HloInstruction], known: Mapping[HloInstruction, int], depth: int = 0
) -> dict[HloInstruction, int]:
    """The integers that scalars are, in the order they are computed, given what some are."""
    found = dict(known)
    for instruction in scalars:
        if instruction not in found:
            value = _value_of(instruction, found, depth)
            name = instruction.shape.element_type.text
            most = 1 if name == "pred" else _MAX_INT32
            if value is not None and _LEAST_OF[name] <= value <= most:
                found[instruction] = value
    return found


def integers_inside(
    fusion: HloInstruction, known: Mapping[HloInstruction, int], depth: int = 0
) -> dict[HloInstruction, int]:
    """The integers in the body of a fusion whose operands are known as far as they are."""
    [body] = fusion.called_computations
    given = {
        parameter: known[operand]
        for parameter, operand in zip(body.parameters, fusion.operands, strict=True)
        if operand in known
    }
    return find_integers(scalars_of(body), given, depth + 1)


def _value_of(
    instruction: HloInstruction, known: Mapping[HloInstruction, int], depth: int
) -> int | None:
    opcode = instruction.opcode
    if opcode == "constant":
        return _literal(instruction.payload.strip())
    if opcode == "fusion":
        if depth >= MAX_DEPTH:
            return None
        return integers_inside(instruction, known, depth).get(
            instruction.called_computations[0].root
        )
    operands = [known.get(operand) for operand in instruction.operands]
    if opcode == "compare":
        compare = _COMPARISONS.get(instruction.attributes.get("direction", ""))
        return None if compare is None else _apply(compare, operands)
    operation = _OPERATIONS.get(opcode)
    return None if operation is None else _apply(operation, operands)


def _apply(operation: Callable[..., int], operands: Sequence[int | None]) -> int | None:
    if None in operands:
        return None
    return int(operation(*operands))


def _literal(text: str) -> int | None:
    if text in ("true", "false"):
        return int(text == "true")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > len(str(_MAX_INT32)):
        return None
    return int(text)


_TRIP_COUNT = lazy_pattern(r'"known_trip_count":\{"n":"(\d{1,9})"\}')


def trip_count(loop: HloInstruction) -> int:
    """The passes of a loop; one where they are not known."""
    written = _written_count(loop)
    return count_trips(loop) or 1 if written is None else written


def is_counted(loop: HloInstruction) -> bool:
    """Whether XLA wrote how often a loop runs, so that no host asks before each pass."""
    return _written_count(loop) is not None


def _written_count(loop: HloInstruction) -> int | None:
    found = _TRIP_COUNT.search(loop.attribute_text)
    return int(found[1]) if found else None


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
    """The readers of each element of a tuple; None where the tuple is read as a whole."""
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
