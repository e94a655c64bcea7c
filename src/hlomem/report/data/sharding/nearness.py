"""The constraints nearest to a value, by the operations between them, before partitioning.

Steps go from a value to its operands and its users, into calls and loops and out of them. Values
much smaller than the one asked about are not gone through: their sharding says nothing of it.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from hlomem.report.data.sharding.whole_program import (
    Constraint,
    WholeProgram,
    WholeValue,
    is_constraint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.sharding import Sharding

    Calls = tuple[HloInstruction, ...]
    Step = tuple[HloInstruction, Calls]

_MAX_SEEN = 4000
_MAX_STEPS = 40
_SMALLER = 16
"""How many times smaller than the value those may be that are gone through."""


def near_constraints(
    whole: WholeProgram,
    value: WholeValue,
    is_end: Callable[[Sharding], bool] = lambda _: False,
) -> Iterator[tuple[int, Constraint]]:
    """Constraints and how many steps away they are, the nearest first; none is beyond an end."""
    least = prod(value.dimensions) // _SMALLER
    level: list[Step] = [(value.instruction, value.calls)]
    seen = {level[0]}
    for steps in range(_MAX_STEPS):
        following: list[Step] = []
        for one, calls in level:
            sharding = whole.sharding_of(one) if is_constraint(one) else None
            if sharding is not None:
                yield steps, Constraint(WholeValue(one, _name(one, calls), calls), sharding)
                if is_end(sharding):
                    continue
            for step in _neighbours(one, calls):
                if step not in seen and _size(step[0]) >= least:
                    seen.add(step)
                    following.append(step)
        if not following or len(seen) > _MAX_SEEN:
            return
        level = following


def _name(one: HloInstruction, calls: Calls) -> str:
    """JAX's name of an operation, with those of the calls around it."""
    names = [call.metadata.op_name for call in calls if call.opcode == "call"]
    return "/".join([name for name in (*names, one.metadata.op_name) if name])


def _size(one: HloInstruction) -> int:
    return prod(one.shape.dimensions) if one.shape.is_array else 0


def _neighbours(one: HloInstruction, calls: Calls) -> Iterator[Step]:
    yield from _before(one, calls)
    yield from steps_after(one, calls)


def steps_after(one: HloInstruction, calls: Calls) -> Iterator[Step]:
    """The values that a value is handed on to, or that are computed of it."""
    for user in one.users:
        for number, operand in enumerate(user.operands):
            if operand is one:
                yield from _after(user, number, calls)
    if calls and calls[-1].opcode != "while" and one is _last(calls[-1], one):
        yield calls[-1], calls[:-1]


def _last(call: HloInstruction, one: HloInstruction) -> HloInstruction | None:
    return next((part.root for part in call.called_computations if part.root is one), None)


def _before(one: HloInstruction, calls: Calls) -> Iterator[Step]:
    """The values that a value is computed from, or handed on from."""
    if one.opcode == "parameter":
        given = _given(one, calls)
        yield from [(given, calls[:-1])] if given is not None else []
    elif one.opcode == "get-tuple-element":
        yield from _parts(one.operands[0], one.tuple_index, calls)
    elif one.opcode in ("call", "conditional"):
        for callee in one.called_computations:
            yield callee.root, (*calls, one)
    else:
        for operand in one.operands:
            yield operand, calls


def _given(one: HloInstruction, calls: Calls) -> HloInstruction | None:
    """The operand of a call that is a parameter in it."""
    if not calls or calls[-1].opcode not in ("call", "conditional"):
        return None
    operands = calls[-1].operands
    if calls[-1].opcode == "call":
        return operands[one.parameter_number]
    branches = calls[-1].called_computations
    at = next((at for at, part in enumerate(branches) if one in part.instructions), None)
    return None if at is None or at + 1 >= len(operands) else operands[at + 1]


def _parts(holder: HloInstruction, index: int, calls: Calls) -> Iterator[Step]:
    """The values that a part of a tuple may be."""
    if holder.opcode == "tuple":
        yield holder.operands[index], calls
    elif holder.opcode == "while":
        yield from _parts(holder.operands[0], index, calls)
        yield from _parts(_body(holder).root, index, (*calls, holder))
    elif holder.opcode in ("call", "conditional"):
        for callee in holder.called_computations:
            yield from _parts(callee.root, index, (*calls, holder))
    elif holder.opcode == "parameter" and calls and calls[-1].opcode == "while":
        yield from _parts(calls[-1].operands[0], index, calls[:-1])
        root = _body(calls[-1]).root
        if root.opcode == "tuple":
            yield root.operands[index], calls
    elif holder.opcode == "parameter":
        given = _given(holder, calls)
        yield from _parts(given, index, calls[:-1]) if given is not None else ()


def _after(user: HloInstruction, number: int, calls: Calls) -> Iterator[Step]:
    """The values that an operand of an instruction becomes, or is computed into."""
    if user.opcode == "tuple":
        yield from _handed_on(user, number, calls)
    elif user.opcode in ("call", "conditional"):
        for at, callee in enumerate(user.called_computations):
            wanted = number if user.opcode == "call" else 0
            if user.opcode == "call" or number == at + 1:
                yield from [(one, (*calls, user)) for one in _parameters(callee, wanted)]
    else:
        yield user, calls


def _handed_on(holder: HloInstruction, index: int, calls: Calls) -> Iterator[Step]:
    """The uses of a part of a tuple: in the loop it starts or ends, and after a call."""
    for user in holder.users:
        if user.opcode == "while":
            yield from [(part, calls) for part in _taken(user, index)]
            for parameter in _parameters(_body(user), 0):
                yield from [(part, (*calls, user)) for part in _taken(parameter, index)]
        elif user.opcode == "get-tuple-element" and user.tuple_index == index:
            yield user, calls
    if not calls or _last(calls[-1], holder) is None:
        return
    yield from [(part, calls[:-1]) for part in _taken(calls[-1], index)]
    if calls[-1].opcode == "while":
        for parameter in _parameters(_body(calls[-1]), 0):
            yield from [(part, calls) for part in _taken(parameter, index)]


def _body(loop: HloInstruction) -> HloComputation:
    """The body of a loop, not its condition."""
    return next(
        (part for part in loop.called_computations if part.root.shape.is_tuple),
        loop.called_computations[0],
    )


def _parameters(computation: HloComputation, number: int) -> list[HloInstruction]:
    return [
        one
        for one in computation.instructions
        if one.opcode == "parameter" and one.parameter_number == number
    ]


def _taken(holder: HloInstruction, index: int) -> list[HloInstruction]:
    return [
        user
        for user in holder.users
        if user.opcode == "get-tuple-element" and user.tuple_index == index
    ]
