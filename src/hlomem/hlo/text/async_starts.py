"""The start of an asynchronous operation that reaches its end in tuples and the state of loops.

In: an async-update or async-done. Out: its start. The printer needs it: `slice-done` is short for
the end of an operation that wraps a slice. Mirrors `FindAsyncChainStart` of
`hlo/ir/hlo_instructions.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloComputation, HloInstruction

    _Step = tuple[HloInstruction, tuple[int, ...]]
    """An instruction, and the elements of its result that are looked for, the outermost last."""

_PASSING_ON = frozenset(
    {
        "Sharding",
        "LocalToGlobalShape",
        "GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.FuncResultSharding",
    }
)
"""Custom calls through which a chain goes on (`IsAllowedAsyncIntermediaryCustomCall`)."""


def find_start(operation: HloInstruction) -> HloInstruction | None:
    """The start of an update or done; None where it is not seen."""
    loops = operation.parent.module.loop_by_body
    pending: list[_Step] = [(operation, ())]
    seen: set[tuple[int, tuple[int, ...]]] = set()
    while pending:
        found, path = pending.pop()
        if found.opcode == "async-start":
            return found
        if (id(found), path) not in seen:
            seen.add((id(found), path))
            pending += reversed(_steps_back(found, path, loops))
    return None


def _steps_back(
    found: HloInstruction, path: tuple[int, ...], loops: dict[HloComputation, HloInstruction]
) -> list[_Step]:
    """The sources of a part of a result, the likeliest first."""
    operands, opcode = found.operands, found.opcode
    if opcode in ("async-update", "async-done"):
        return [(operands[0], ())] if operands else []
    if opcode == "get-tuple-element":
        return [(operands[0], (*path, found.tuple_index))]
    if opcode in ("copy", "opt-barrier") or found.custom_call_target in _PASSING_ON:
        return [(operands[0], path)] if operands else []
    if opcode == "tuple":
        if not path:
            return [(operand, ()) for operand in operands]
        return [(operands[path[-1]], path[:-1])] if path[-1] < len(operands) else []
    if opcode == "parameter" and found.parent in loops:
        return [(loops[found.parent].operands[0], path), (found.parent.root, path)]
    if opcode == "while":
        return [(found.called_computations[0].root, path), (operands[0], path)]
    return []
