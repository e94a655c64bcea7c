"""Integers that a computation is sure to have, fusions looked into: counters, indices of slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.opcodes import Opcode

MAX_DEPTH = 4
"""Fusions within fusions that are looked into."""
_LEAST_OF = {"pred": 0, "s32": -(1 << 31), "s64": -(1 << 31), "u32": 0, "u64": 0}
"""By type the least number that is known; below, and above the most, it may wrap around."""
_OPERATIONS: Mapping[Opcode, Callable[..., int]] = {
    "add": lambda one, other: one + other,
    "and": lambda one, other: one & other,
    "bitcast": lambda only: only,
    "copy": lambda only: only,
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
    """Whether it is a single integer."""
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
            if value is not None and _is_in_range(instruction, value):
                found[instruction] = value
    return found


def _is_in_range(instruction: HloInstruction, value: int) -> bool:
    name = instruction.shape.element_type.text
    return _LEAST_OF[name] <= value <= (1 if name == "pred" else _MAX_INT32)


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
