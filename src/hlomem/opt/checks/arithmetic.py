"""Integers of a program that are computed: counters of loops, and what is compared with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.opcodes import Opcode
    from hlomem.hlo.shape import Shape

_UNKNOWN = 1 << 40
"""Instead of a quotient that is not computed: in no range."""
_RANGES = {
    "pred": range(2),
    "s32": range(-(1 << 31), 1 << 31),
    "s64": range(-(1 << 31), 1 << 31),
    "u32": range(1 << 31),
    "u64": range(1 << 31),
}
"""By type the numbers that are computed with; others might wrap around."""
_ARITHMETIC: Mapping[Opcode, Callable[..., int]] = {
    "add": lambda one, other: one + other,
    "subtract": lambda one, other: one - other,
    "multiply": lambda one, other: one * other,
    "divide": lambda one, other: one // other if one >= 0 < other else _UNKNOWN,
    "negate": lambda only: -only,
    "maximum": max,
    "minimum": min,
    "and": lambda one, other: one & other,
    "or": lambda one, other: one | other,
    "select": lambda which, one, other: one if which else other,
}
_ORDERINGS: Mapping[str, Callable[[int, int], bool]] = {
    "LT": lambda one, other: one < other,
    "LE": lambda one, other: one <= other,
    "GT": lambda one, other: one > other,
    "GE": lambda one, other: one >= other,
    "EQ": lambda one, other: one == other,
    "NE": lambda one, other: one != other,
}
_MAX_INT32 = (1 << 31) - 1


def may_compute(shape: Shape) -> bool:
    """Whether a value of this shape is one that is computed."""
    return not shape.dimensions and shape.element_type.text in _RANGES


def constant_of(instruction: HloInstruction) -> int | None:
    """The number that a constant says; None for one that is not computed with."""
    text = instruction.payload.strip()
    if text in ("true", "false"):
        return int(text == "true")
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(digits) < len(str(_MAX_INT32)):
        return int(text)
    return None


def outcome_of(instruction: HloInstruction, numbers: Sequence[int | None]) -> int | None:
    """The result of an operation on integers; None where that is not known."""
    if None in numbers:
        return None
    operation = _ARITHMETIC.get(instruction.opcode)
    if instruction.opcode == "compare":
        operation = _ORDERINGS.get(instruction.attributes.get("direction", ""))
    if operation is None:
        return None
    number = int(operation(*numbers))
    return number if number in _RANGES[instruction.shape.element_type.text] else None
