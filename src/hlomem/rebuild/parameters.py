"""Matching the parameters of called computations with their callers' operands.

A parameter holds no value of its own, only the operand's, so no text shows it; the values tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hlomem.rebuild.shapes import Shapes
    from hlomem.view.computations import Computation
    from hlomem.view.drafts import Draft
    from hlomem.view.joined import JoinedDump


def number_parameters(
    computations: Iterable[Computation],
    drafts: Mapping[str, Draft],
    shapes: Shapes,
    joined: JoinedDump,
) -> None:
    """Give the parameters that are not printed their numbers and shapes."""
    for computation in computations:
        members = [drafts[name] for name in computation.instructions]
        unknown = [draft for draft in members if draft.opcode == "parameter" and draft.line is None]
        if not unknown or not computation.caller:
            continue
        arguments = dict(enumerate(_arguments(drafts[computation.caller], computation.name)))
        for draft in unknown:
            number = _argument_of(draft, arguments, joined)
            draft.attributes = str(number)
            draft.shape = shapes[arguments.pop(number)]


def _argument_of(draft: Draft, arguments: dict[int, str], joined: JoinedDump) -> int:
    """The number of the first argument left that holds the same, or of the first."""
    if not arguments:
        raise InputError(f"no operand is left for `{draft.name}`; the dump contradicts itself")
    held = joined.held[draft.name]
    fitting = (number for number, name in arguments.items() if joined.held.get(name) == held)
    return next(fitting, min(arguments))


def _arguments(caller: Draft, callee: str) -> list[str]:
    """The operands that a callee's parameters stand for."""
    if caller.opcode == "conditional":
        return [caller.operands[1 + caller.callees.index(callee)]]
    if caller.is_async:
        return caller.bound
    return caller.operands[:1] if caller.opcode == "while" else caller.operands
