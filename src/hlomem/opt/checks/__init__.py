"""Checkers of changed programs, one for each kind; they know nothing of how a change was chosen."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from hlomem.opt.checks.edit import find_edit_problems
from hlomem.opt.checks.equivalence import find_meaning_problems
from hlomem.opt.checks.offload import find_move_problems
from hlomem.opt.checks.order import STRICT, Allowed, find_order_problems
from hlomem.opt.checks.over import find_over_problems
from hlomem.opt.checks.pieces import find_piece_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hlomem.hlo.ir import HloModule

__all__ = ["STRICT", "Allowed", "Change", "Kind", "find_problems"]

Kind: TypeAlias = Literal["order", "clones", "loops", "pieces", "offload", "over"]
"""The order alone is another; instructions of the entry are recomputed, too; loops
stack other values; a region is computed in pieces; values wait in the memory of the host;
results are written over operands."""
_CHECKERS: Mapping[Kind, Callable[[HloModule, HloModule, Allowed], list[str]]] = {
    "order": find_order_problems,
    "clones": find_edit_problems,
    "loops": find_meaning_problems,
    "pieces": find_piece_problems,
    "offload": find_move_problems,
    "over": find_over_problems,
}


class Change(NamedTuple):
    """A program on the way to another."""

    module: HloModule
    """After the change."""
    kind: Kind


def find_problems(
    before: HloModule, changes: Iterable[Change], allowed: Allowed = STRICT
) -> list[str]:
    """The problems of the first change that has any, each compared to what it followed.

    Changed loops that follow one another are compared as one, first: what computes the same as the
    first of them was made of needs no more.
    """
    pending = list(changes)
    while pending:
        same = list(takewhile(lambda change: change.kind == "loops", pending))
        if len(same) > 1 and not find_meaning_problems(before, same[-1].module, allowed):
            before = same[-1].module
            del pending[: len(same)]
            continue
        change = pending.pop(0)
        if problems := _CHECKERS[change.kind](before, change.module, allowed):
            return problems
        before = change.module
    return find_unread(before)


def find_unread(module: HloModule) -> list[str]:
    """Instructions of fusions that are not read, which XLA refuses (`hlo_verifier.cc`)."""
    bodies = {
        body
        for computation in module.computations
        for one in computation.instructions
        if one.opcode == "fusion"
        for body in one.called_computations
    }
    return [
        f"{one.name} is not read in {body.name}"
        for body in bodies
        for one in body.instructions
        if one is not body.root and not one.users
    ]
