"""The chain of nodes to recompute right before a place, for one value to be there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.opt import constants

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.opt.remat.places import Places
    from hlomem.opt.remat.state import State


class Chain:
    """The nodes to recompute right before a position."""

    def __init__(
        self, places: Places, state: State, place: int, kept_size: int, moves: Sequence[int]
    ) -> None:
        self._places = places
        self._state = state
        self.place = place
        self._kept_size = kept_size
        self.clones: list[tuple[int, tuple[int, ...]]] = []
        self.kept: set[int] = set()
        self.moves = moves
        """Nodes that are not cloned, but run here and nowhere else."""
        self.moved: dict[int, tuple[int, ...]] = {}
        self.had_choice = False
        """Whether an operand could have been kept as well as recomputed."""
        self._made: dict[int, int] = {}
        self._begun = 0
        """Clones that are made, or will be once their operands are."""

    def most_alive(self) -> int:
        """The most bytes that the clones need among themselves, each until its last reader."""
        flow = self._state.flow
        sizes = [sum([flow.size(value) for value in flow.made_by[node]]) for node, _ in self.clones]
        last = dict.fromkeys(range(len(sizes)), len(sizes))
        for reader, (_, operands) in enumerate(self.clones):
            for operand in operands:
                if operand < 0:
                    last[-1 - operand] = reader
        alive = most = 0
        for number, size in enumerate(sizes):
            over = [sizes[read] for read in self._taken_over(number) if last[read] == number]
            alive += size
            most = max(most, alive - min(size, max(over, default=0)))
            alive -= sum([sizes[read] for read in range(number) if last[read] == number])
        return most

    def _taken_over(self, number: int) -> Iterator[int]:
        """The clones that one may write its result over."""
        state = self._state
        node, operands = self.clones[number]
        over = {one for _, candidates in state.flow.shares.get(node, ()) for one in candidates}
        for original, operand in zip(state.operands[node], operands, strict=True):
            is_shared = not over.isdisjoint(state.holds[original])
            if operand < 0 and (is_shared or state.writes_over(node, original)):
                yield -1 - operand

    def remake(self, node: int, value: int) -> int | None:
        """The clone of what holds a value; None where it cannot be made."""
        if node in self._made:
            return self._made[node]
        state = self._state
        if not state.may_repeat(node):
            return None
        if node not in self.moves:
            self._begun += 1
        if self._begun > constants.MAX_CHAIN:
            self.had_choice = True  # it may have one further on
            return None
        operands: list[int] = []
        for operand in state.operands[node]:
            is_over = state.writes_over(node, operand)
            if is_over and node in self.moves and operand not in self.moves:
                self.kept.update(state.holds[operand])
                found: int | None = operand
            elif is_over and node not in self.moves and not self._places.is_read_once(operand):
                return None
            # On the way to its maker, or written over in turn.
            elif operand in self.moves or value in state.holds[operand] or is_over:
                found = self.remake(operand, value)
            else:
                found = self._need(operand, value)
            if found is None:
                return None
            operands.append(found)
        if node in self.moves:
            self.moved[node] = tuple(operands)
            self._made[node] = node
            return node
        self.clones.append((node, tuple(operands)))
        self._made[node] = -len(self.clones)
        return self._made[node]

    def _need(self, node: int, value: int) -> int | None:
        """The node to read for an operand: the one there, a clone, or the one kept alive."""
        places, place = self._places, self.place
        found = places.find_copy(node, place)
        if found is not None:
            return found
        state = self._state
        held = state.holds[node]
        may_repeat = state.may_repeat(node)
        if places.intact_until[node] >= place and value not in held:
            self.had_choice = self.had_choice or may_repeat
            if not may_repeat or sum(map(state.flow.size, held)) <= self._kept_size:
                self.kept.update(held)
                return node
        return self.remake(node, value) if may_repeat else None
