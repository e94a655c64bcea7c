"""A region of one computation whose instructions can run in pieces, along a dimension they share.

It grows from one large value to the makers and users of all large values in it. What lies between
two of its instructions belongs to it, too, so that one loop can replace them all. A large
value from before something that cannot be part of it is computed once more, in pieces.
"""

from __future__ import annotations

from collections import defaultdict
from math import gcd
from typing import TYPE_CHECKING

from hlomem.hlo.counting_indices import Scope
from hlomem.hlo.dimension_links import SLICED, Cut, Share
from hlomem.opt.constants import MAX_PIECES
from hlomem.opt.goal import ALL_SCOPES
from hlomem.opt.orders.bound import reachable
from hlomem.opt.pieces.solve import Solved, solve
from hlomem.opt.pieces.tiles import most_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.opt.goal import Scopes

_ELEMENT = "get-tuple-element"
_MAX_BANS = 6
"""Times that a region is begun again without what is in its way."""


class Reach:
    """The instructions before and after every one of a computation, as bits."""

    def __init__(self, computation: HloComputation) -> None:
        nodes = computation.instructions
        self.nodes = nodes
        self.node_of = {one: node for node, one in enumerate(nodes)}
        before = [
            [self.node_of[one] for one in (*node.operands, *node.control_predecessors)]
            for node in nodes
        ]
        after: list[list[int]] = [[] for _ in nodes]
        for node, operands in enumerate(before):
            for operand in operands:
                after[operand].append(node)
        count = len(nodes)
        self.above = reachable(before, range(count))
        self.below = reachable(after, range(count)[::-1])


class Region:
    def __init__(
        self,
        reach: Reach,
        size_of: Callable[[Shape], int],
        least: int,
        banned: int = 0,
        scopes: Scopes = ALL_SCOPES,
    ) -> None:
        """`least` is the size from which values are large; `banned` is left out, as bits."""
        self._reach = reach
        self._size_of = size_of
        self._least = least
        self._banned = banned
        self._scopes = scopes
        self.solved: dict[HloInstruction, Solved] = {}
        """By instruction of the region how it is computed; without elements of tuples."""
        self.cut: dict[HloInstruction, Cut] = {}
        """By array of the region how it is cut."""
        self.again: set[HloInstruction] = set()
        """Instructions of the region that run outside of it, too."""
        self.demands: dict[HloInstruction, set[int | None]] = defaultdict(set)
        """By array that the region reads, its own too: how it needs it."""

    # Instructions.

    def include(
        self, instruction: HloInstruction, result: int | None = None, *, again: bool = False
    ) -> bool:
        """Take an instruction into the region, if it can be computed in pieces with the others.

        With `again` it is not moved there, but computed once more.
        """
        wanted = {} if result is None else {0: result}
        if instruction.opcode == _ELEMENT:
            wanted = {} if result is None else {instruction.tuple_index: result}
            [instruction] = instruction.operands
        known = self.solved.get(instruction)
        if known is not None:
            return all(known.link.results[number] == cut for number, cut in wanted.items())
        is_banned = bool(self._banned >> self._reach.node_of[instruction] & 1)
        if is_banned is not again or not self._is_allowed(instruction):
            return False
        cuts = {
            number: cut
            for number, operand in enumerate(instruction.operands)
            if (cut := self.cut.get(operand)) is not None
        }
        if any(isinstance(cut, Share) for cut in cuts.values()) or not (cuts or wanted):
            return False
        whole = {number: cut for number, cut in cuts.items() if isinstance(cut, int)}
        solved = solve(instruction, whole, wanted, Scope())
        if solved is None or not self._take(instruction, solved):
            return False
        self.again |= {instruction} if again else set()
        return True

    def _is_allowed(self, instruction: HloInstruction) -> bool:
        """Whether an instruction comes from parts of the code that may change, if it is known."""
        return self._scopes.has(instruction) or not instruction.metadata.op_name

    def _take(self, instruction: HloInstruction, solved: Solved) -> bool:
        made = dict(self._arrays(instruction, solved))
        if not made or any(cut is None for cut in made.values()):
            return False
        if not all(self.demands[one] <= {cut} for one, cut in made.items() if one in self.demands):
            return False
        self.solved[instruction] = solved
        self.cut.update(made)
        for operand, cut in zip(instruction.operands, solved.link.operands, strict=True):
            self.demands[operand].add(cut)
        return True

    def _arrays(
        self, instruction: HloInstruction, solved: Solved
    ) -> Iterator[tuple[HloInstruction, Cut]]:
        """The arrays that an instruction makes; nothing where its tuple is handed on whole."""
        results = solved.link.results
        if instruction.shape.is_array:
            yield instruction, results[0]
        elif all(user.opcode == _ELEMENT for user in instruction.users):
            yield from ((user, results[user.tuple_index]) for user in instruction.users)

    def is_large(self, value: HloInstruction) -> bool:
        return value.shape.is_array and self._size_of(value.shape) >= self._least

    # Growth.

    def grow(self) -> HloInstruction | None:
        """Take in all that large values need, and what lies between; what cannot be, if any."""
        done: set[HloInstruction] = set()
        while True:
            new = [one for one in self.solved if one not in done]
            for instruction in new:
                done.add(instruction)
                self._take_neighbours(instruction)
            if len(done) < len(self.solved):
                continue
            between = self._between()
            if not between:
                self._leave_outside()
                return None
            for instruction in between:
                if instruction not in self.cut and not self.include(instruction):
                    return instruction

    def _leave_outside(self) -> None:
        """Let large values that others need, too, be computed once more for these."""
        is_new = True
        while is_new:
            is_new = False
            moved = set(self.moved)
            for value in self.results:
                [maker] = value.operands if value.opcode == _ELEMENT else [value]
                if maker in self.again or not self.is_large(value):
                    continue
                needed = [one for one in maker.operands if one in moved]
                is_made = all(isinstance(self.cut[one], int) for one in self.arrays_of(maker))
                if is_made and not any(self.is_large(one) for one in needed):
                    self.again.add(maker)
                    is_new = True

    def _take_neighbours(self, instruction: HloInstruction) -> None:
        link = self.solved[instruction].link
        for operand, cut in zip(instruction.operands, link.operands, strict=True):
            if cut is not None and operand not in self.cut and self.is_large(operand):
                self.include(operand, cut) or self.include(operand, cut, again=True)
        if instruction in self.again:
            return
        for value in self.arrays_of(instruction):
            if isinstance(self.cut[value], int) and self.is_large(value):
                for user in value.users:
                    self.include(user)

    @property
    def moved(self) -> list[HloInstruction]:
        """Instructions that the loop replaces."""
        made = [one for one in self.solved if one not in self.again]
        arrays = [array for one in made for array in self.arrays_of(one)]
        return list(dict.fromkeys([*made, *arrays]))

    def arrays_of(self, instruction: HloInstruction) -> list[HloInstruction]:
        """The arrays that an instruction of the region makes."""
        return [instruction] if instruction in self.cut else instruction.users

    def _between(self) -> list[HloInstruction]:
        """Instructions that read what the region makes, and that it needs, in their order."""
        reach, members, above, below = self._reach, 0, 0, 0
        for instruction in self.moved:
            node = reach.node_of[instruction]
            members |= 1 << node
            above |= reach.above[node]
            below |= reach.below[node]
        left = above & below & ~members
        return [one for node, one in enumerate(reach.nodes) if left >> node & 1]

    # What it comes to.

    @property
    def pieces(self) -> int:
        """The number of pieces that any number of pieces divides."""
        found = 0
        for instruction, solved in self.solved.items():
            for one, cut in zip(instruction.operands, solved.link.operands, strict=True):
                if cut is not None:
                    found = gcd(found, one.shape.dimensions[cut])
            found = gcd(found, _inside(solved))
        for one, made in self.cut.items():
            if isinstance(made, int):
                found = gcd(found, one.shape.dimensions[made])
        return found

    @property
    def most(self) -> int:
        """The number of pieces that all kernels can compute."""
        return min((most_pieces(*pair) for pair in self.solved.items()), default=MAX_PIECES)

    @property
    def internal(self) -> list[HloInstruction]:
        """Values that exist in pieces only, where they do not run outside, too."""
        results = set(self.results)
        return [one for one, cut in self.cut.items() if isinstance(cut, int) and one not in results]

    @property
    def results(self) -> list[HloInstruction]:
        """Values that are needed whole, in the order of the computation."""
        moved = set(self.moved)
        found = [
            one
            for one, cut in self.cut.items()
            if one in moved
            and (
                isinstance(cut, Share)
                or one.is_root
                or not all(user in moved for user in one.users)
            )
        ]
        return sorted(found, key=lambda one: one.index)

    @property
    def inputs(self) -> list[HloInstruction]:
        """Values that it reads and does not make, constants aside, in their order."""
        found = [one for one in self.demands if one not in self.cut and one.opcode not in SLICED]
        return sorted(found, key=lambda one: one.index)


def _inside(solved: Solved) -> int:
    """The greatest number that divides the sizes of all that is cut in a fusion."""
    found = 0
    for one, cut in solved.cuts.items():
        if isinstance(cut, int):
            found = gcd(found, one.shape.dimensions[cut])
    for inner in solved.inside.values():
        found = gcd(found, _inside(inner))
    return found


def find_region(
    value: HloInstruction,
    dimension: int,
    reach: Reach,
    size_of: Callable[[Shape], int],
    least: int,
    scopes: Scopes = ALL_SCOPES,
) -> Region | None:
    """The region that a value is computed in, in pieces along a dimension; None where none is."""
    banned = 0
    for _ in range(_MAX_BANS):
        region = Region(reach, size_of, least, banned, scopes)
        if not region.include(value, dimension):
            return None
        obstacle = region.grow()
        if obstacle is None:
            return region if region.moved else None
        node, start = reach.node_of[obstacle], reach.node_of[value]
        is_before = reach.below[node] >> start & 1
        banned |= (reach.above if is_before else reach.below)[node] | 1 << node
    return None
