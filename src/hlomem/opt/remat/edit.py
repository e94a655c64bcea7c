"""An edit: recomputed instructions, their readers, and the order of all, by names."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.rewrite import Rewriter
from hlomem.hlo.schedule import running_computations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.ir import HloModule
    from hlomem.pipeline import Stages

SUFFIX = "remat"


class Clone(NamedTuple):
    """An instruction like another, with operands of its own."""

    name: str
    original: str
    operands: tuple[str, ...]


class Edit(NamedTuple):
    entry: str
    """The name of the entry, or of the body of a loop."""
    clones: tuple[Clone, ...]
    """New instructions there, operands before users."""
    operands: Mapping[str, tuple[str, ...]]
    """By instruction there: its operands, where they are others now."""
    orders: Mapping[str, tuple[str, ...]]
    """By computation: its instructions in order, clones among them."""


def orders_by_name(stages: Stages) -> dict[str, tuple[str, ...]]:
    return {
        computation.name: tuple(one.name for one in stages.schedule.sequence(computation))
        for computation in running_computations(stages.module)
    }


def apply_edit(module: HloModule, edit: Edit) -> HloModule:
    """The module with an edit made; `EditError` where that leaves no valid module."""
    rewriter = Rewriter(module)
    changed = module.computation_by_name[edit.entry]
    known = {instruction.name: instruction for instruction in changed.instructions}
    for clone in edit.clones:
        original = known[clone.original]
        made = known[clone.name] = rewriter.clone(original, clone.name)
        if made.opcode == "fusion":
            body = rewriter.clone_fused(made.called_computations[0], SUFFIX)
            rewriter.set_called(made, 0, body)
    wanted = {clone.name: clone.operands for clone in edit.clones} | dict(edit.operands)
    for name, operands in wanted.items():
        for number, operand in enumerate(operands):
            rewriter.set_operand(known[name], number, known[operand])
    orders = {}
    for computation in running_computations(module):
        by_name = {instruction.name: instruction for instruction in computation.instructions}
        if computation is changed:
            by_name = known
        if computation.name in edit.orders:
            orders[computation] = [by_name[name] for name in edit.orders[computation.name]]
    rewriter.schedule(orders)
    return rewriter.finish()
