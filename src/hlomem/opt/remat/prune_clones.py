"""Clones taken back where there is room for what they recompute, the most expensive first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.opt.constants import MAX_PRUNED
from hlomem.opt.remat.draft import Draft, take_back
from hlomem.opt.remat.state import FORWARDS

if TYPE_CHECKING:
    from hlomem.opt.remat.flops import Costs
    from hlomem.opt.remat.state import State


def relax(state: State, costs: Costs, wanted: int) -> State:
    """The state without the clones that are not needed to keep no more than so many bytes alive."""
    relaxed = _Relaxation(state, costs, wanted)
    relaxed.run()
    return settle(relaxed.state)


def settle(state: State) -> State:
    """The state in which nothing is computed twice that nobody reads the first time.

    A node whose readers all read a clone of it runs where the clone does, and nowhere else.
    """
    for clone in reversed(state.clone_nodes()):
        node = state.origin[clone]
        if not _is_unread(state, node) or not state.may_repeat(node):
            continue
        draft = Draft(state)
        operands = state.operands[clone]
        draft.rewire(node, operands, draft.renamed(node, operands))
        gone = {*draft.merge(clone, node), node}
        place = state.order.index(clone)
        order = [one for one in state.order[:place] if one not in gone]
        order += [node, *(one for one in state.order[place:] if one not in gone)]
        state = draft.finish(order)
    return state


def _is_unread(state: State, node: int) -> bool:
    """Whether nothing reads what a node makes, nor is it a part of the result."""
    if node >= state.count or state.is_used(node):
        return False
    return not any(
        state.flow.values[value].lives_on or state.flow.values[value].readers
        for value in state.flow.made_by[node]
    )


class _Relaxation:
    def __init__(self, state: State, costs: Costs, wanted: int) -> None:
        self._costs = costs
        self._wanted = wanted
        self._take(state, state.levels())

    def _take(self, state: State, levels: list[int]) -> None:
        self.state = state
        self._levels = levels
        self._places = {node: place for place, node in enumerate(state.order)}
        self._last = [
            len(self._places)
            if value.lives_on
            else max([self._places[reader] for reader in value.readers], default=-1)
            for value in state.flow.values
        ]

    def run(self) -> None:
        """Try all clones once, the dearest first."""
        state = self.state
        clones = [
            node for node in state.clone_nodes() if state.instruction(node).opcode not in FORWARDS
        ]
        clones.sort(key=lambda node: (-self._cost(node), node))
        for clone in clones[:MAX_PRUNED]:
            if clone in self._places:
                self._try(clone)

    def _cost(self, node: int) -> int:
        instruction = self.state.instruction(node)
        return self._costs.flops(instruction) + self._costs.bytes_touched(instruction)

    def _try(self, clone: int) -> None:
        other = self._find_other(clone)
        if other is None or not self._may_fit(clone, other):
            return
        state, _ = take_back(self.state, clone, other)
        levels = state.levels()
        if max(levels) <= self._wanted:
            self._take(state, levels)

    def _find_other(self, clone: int) -> int | None:
        """The node of the same that is read longest, if nothing is written over it in time."""
        state, places = self.state, self._places
        end = max([self._last[value] for value in state.holds[clone]], default=places[clone])
        origin = state.origin[clone]
        others = [
            node
            for node, place in places.items()
            if state.origin[node] == origin
            and place < places[clone]
            and all(places[writer] >= end for writer in state.limits(node))
        ]
        return max(others, key=self._end, default=None)

    def _end(self, node: int) -> int:
        return max([self._last[value] for value in self.state.holds[node]], default=-1)

    def _may_fit(self, clone: int, other: int) -> bool:
        """Whether what is kept longer could be made up for by what is read no more."""
        state, flow = self.state, self.state.flow
        place = self._places[clone]
        start = max(self._end(other), self._places[other]) + 1
        kept = sum([flow.sizes[flow.values[value].buffer] for value in flow.made_by[clone]])
        freed, pending, seen = 0, [clone], set()
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            for value in flow.read_by[node]:
                if self._last[value] <= place:
                    freed += flow.sizes[flow.values[value].buffer]
            pending += [operand for operand in state.operands[node] if operand >= state.count]
        return max(self._levels[start:place], default=0) + kept - freed <= self._wanted
