"""A program as it is after XLA has dropped its optimisation barriers.

In: a scheduled module. Out: the same without `opt-barrier`s and the tuples that were only for them.
Mirrors `OptimizationBarrierExpander` with the `TupleSimplifier` behind it; XLA runs them when the
order is fixed, so that the memory planned for such a program is that of what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.rewrite import Rewriter

if TYPE_CHECKING:
    from hlomem.hlo.ir import HloInstruction, HloModule

_BARRIER = "opt-barrier"


def has_barriers(module: HloModule) -> bool:
    """Whether there is a barrier outside fusions."""
    return any(_barriers(module))


def without_barriers(module: HloModule) -> HloModule:
    """The module without its barriers, otherwise in the order it has."""
    while barriers := _barriers(module):
        rewriter = Rewriter(module)
        for barrier in barriers:
            _drop(rewriter, barrier)
        module = rewriter.finish()
    return module


def _barriers(module: HloModule) -> list[HloInstruction]:
    """Those that no other barrier is behind, so that one edit does not undo another."""
    return [
        instruction
        for computation in module.outer_computations
        for instruction in computation.instructions
        if instruction.opcode == _BARRIER and not _leads_to_barrier(instruction)
    ]


def _leads_to_barrier(barrier: HloInstruction) -> bool:
    """Whether its operand hands on what another barrier gave."""
    return any(
        source.opcode == "get-tuple-element" and source.operands[0].opcode == _BARRIER
        for source in barrier.operands[0].operands
    )


def _drop(rewriter: Rewriter, barrier: HloInstruction) -> None:
    [given] = barrier.operands
    users = list(barrier.users)
    for user in users:
        if user.opcode == "get-tuple-element" and given.opcode == "tuple":
            rewriter.release(user)
            rewriter.replace_uses(user, given.operands[user.tuple_index])
            rewriter.remove(user)
    rewriter.release(barrier)
    if any(user.opcode != "get-tuple-element" or given.opcode != "tuple" for user in users):
        rewriter.replace_uses(barrier, given)
    rewriter.remove(barrier)
    if given.opcode == "tuple" and given.users == [barrier] and not given.is_root:
        rewriter.release(given)
        rewriter.remove(given)
