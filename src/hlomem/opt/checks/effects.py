"""The effects of a program besides the values that it computes, and what they touch.

What the world outside sees must happen in the same order, and so must what devices do together;
calls that nothing is known of happen as often.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from hlomem.opt.checks.edit import is_pure
from hlomem.opt.checks.order import COLLECTIVE, has_effect

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloComputation, HloInstruction

Key: TypeAlias = "tuple[object, ...]"
"""The act and its terms; of what keeps its order, also by whom, and after how many."""
Touched: TypeAlias = Literal["outside", "together", "once"]
_EMPTY = '"AllocateBuffer"'
"""The target of custom calls that make room and write nothing to it."""
_RUNNING = ("async-start", "call", "conditional", "while")
_HANDING_ON = ("async-done", "parameter", "tuple")


class Happened(NamedTuple):
    """The effects of a program, by what they touch."""

    in_order: dict[Touched, list[Key]]
    """Effects seen outside, and those of devices together; one does not wait for the other."""
    once: Counter[Key]
    """Calls that nothing is known of but that no effect was declared: as often as given."""


def compare_effects(before: Happened, after: Happened) -> Iterator[str]:
    """Effects of the given program that are not the same in the edited one."""
    for was, now in zip(before.in_order.values(), after.in_order.values(), strict=True):
        different = (one for one, other in zip_longest(was, now) if one != other)
        for one in different:
            name = "another call" if one is None else one[-2]
            yield f"side effects do not see the same values in the same order: {name}"
            break
    for one in (before.once - after.once) | (after.once - before.once):
        yield f"{one[-1]} does not run as often, or not on the same values"


def is_free_of_effects(instruction: HloInstruction) -> bool:
    """Whether nothing happens but that a value is computed, or room is made for one."""
    if instruction.opcode == "custom-call" and not instruction.operands:
        return instruction.attributes.get("custom_call_target") == _EMPTY
    return is_pure(instruction, may_wait=True) or is_still(instruction)


def touched_by(instruction: HloInstruction) -> Touched:
    """The kind of an instruction's effects, or that nothing is known of them."""
    if has_effect(instruction, frozenset()):
        return "outside"
    return "together" if has_effect(instruction, COLLECTIVE) else "once"


def is_still(instruction: HloInstruction) -> bool:
    """Whether a loop, branch or call does nothing but compute."""
    if instruction.opcode not in _RUNNING:
        return False
    pending = list(instruction.called_computations)
    seen: set[HloComputation] = set()
    while pending:
        computation = pending.pop()
        if computation in seen:
            continue
        seen.add(computation)
        for inside in computation.instructions:
            if inside.opcode in _RUNNING:
                pending += inside.called_computations
            elif inside.opcode not in _HANDING_ON and not is_pure(inside, may_wait=True):
                return False
    return True
