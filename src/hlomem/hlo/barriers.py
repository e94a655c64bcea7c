"""A scheduled module without its optimization barriers.

Mirrors `OptimizationBarrierExpander` and the `TupleSimplifier` after it, which XLA runs after
scheduling, so that memory is planned without barriers.
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
    while barriers := _barriers(module):
        rewriter = Rewriter(module)
        for barrier in barriers:
            _drop(rewriter, barrier)
        module = rewriter.finish()
    return module


def _barriers(module: HloModule) -> list[HloInstruction]:
    """The barriers that do not depend on others, so that edits do not undo each other."""
    return [
        instruction
        for instruction in module.iter_outer_instructions()
        if instruction.opcode == _BARRIER and not _follows_barrier(instruction)
    ]


def _follows_barrier(barrier: HloInstruction) -> bool:
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
