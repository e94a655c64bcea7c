"""How one instruction is computed in pieces; of a fusion, how all that is in it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.counting_indices import Scope
from hlomem.hlo.dimension_links import Cut, Link, Share, links_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.ir import HloInstruction

_PASSED_ON = ("bitcast", "copy", "reshape", "transpose")
"""Opcodes that a share may go through: they only move its elements."""


class Solved(NamedTuple):
    """An instruction in pieces."""

    link: Link
    cuts: Mapping[HloInstruction, Cut] = {}
    """Of the values in a fusion that are not whole."""
    inside: Mapping[HloInstruction, Solved] = {}


def solve(
    instruction: HloInstruction,
    operands: Mapping[int, int],
    results: Mapping[int, int],
    scope: Scope,
) -> Solved | None:
    """How an instruction is computed in pieces, some operands and results being cut already."""
    if instruction.opcode == "fusion":
        if instruction.output_to_operand_aliasing:
            return None
        return _Fusion(instruction, scope).solve(operands, results)
    for link in links_of(instruction, scope):
        if all(link.operands[number] == cut for number, cut in operands.items()) and all(
            link.results[number] == cut for number, cut in results.items()
        ):
            return Solved(link)
    return None


class _Fusion:
    """The body of a fusion; every value in it that is made of a piece is one."""

    def __init__(self, fusion: HloInstruction, scope: Scope) -> None:
        self._fusion = fusion
        self._scope = Scope(fusion, scope)
        self._cuts: dict[HloInstruction, Cut] = {}
        self._solved: dict[HloInstruction, Solved] = {}
        self._whole: set[HloInstruction] = set()
        self._pending: list[HloInstruction] = []

    def solve(self, operands: Mapping[int, int], results: Mapping[int, int]) -> Solved | None:
        [body] = self._fusion.called_computations
        root = body.root
        roots = root.operands if root.opcode == "tuple" else (root,)
        if not all(one.shape.is_array for one in roots):
            return None
        given = [(body.parameters[number], cut) for number, cut in operands.items()]
        given += [(roots[number], cut) for number, cut in results.items()]
        if not all(self._cut(value, cut) for value, cut in given):
            return None
        while self._pending:
            value = self._pending.pop()
            users = [user for user in value.users if user is not root or root.opcode != "tuple"]
            makers = [] if value.opcode == "parameter" else [value]
            if not all(map(self._link, (*makers, *users))):
                return None
        if not self._whole.isdisjoint(self._cuts):
            return None
        cut_operands = [self._cuts.get(one) for one in body.parameters]
        link = Link(
            tuple([one if isinstance(one, int) else None for one in cut_operands]),
            tuple([self._cuts.get(one) for one in roots]),
        )
        return Solved(link, self._cuts, self._solved)

    def _cut(self, value: HloInstruction, cut: Cut) -> bool:
        """Let a value be cut; False where it is so otherwise."""
        if value in self._cuts:
            return self._cuts[value] == cut
        self._cuts[value] = cut
        self._pending.append(value)
        return True

    def _link(self, value: HloInstruction) -> bool:
        """Find out how a value is made of pieces; False where it cannot be."""
        if value in self._solved:
            return True
        if not value.shape.is_array:
            return False
        known = {
            number: self._cuts[operand]
            for number, operand in enumerate(value.operands)
            if operand in self._cuts
        }
        shares = [one for one in known.values() if isinstance(one, Share)]
        if shares:
            if value.opcode not in _PASSED_ON:
                return False
            self._solved[value] = Solved(Link((None,), (shares[0],)))
            return self._cut(value, shares[0])
        cuts = {number: one for number, one in known.items() if isinstance(one, int)}
        result = self._cuts.get(value)
        wanted = {0: result} if isinstance(result, int) else {}
        solved = solve(value, cuts, wanted, self._scope)
        if solved is None or solved.link.results[0] is None:
            return False
        self._solved[value] = solved
        for operand, cut in zip(value.operands, solved.link.operands, strict=True):
            if cut is None:
                self._whole.add(operand)
            elif not self._cut(operand, cut):
                return False
        return self._cut(value, solved.link.results[0])
