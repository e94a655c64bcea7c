"""Clones in a state: made, read instead of their originals, and taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.opt.constants import MAX_PRUNED
from hlomem.opt.orders.flow import FlowValue
from hlomem.opt.remat.state import FORWARDS, State, Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.opt.orders.cost import Costs


def apply_step(state: State, step: Step) -> State:
    """The program with one more value recomputed."""
    draft = Draft(state)
    first = draft.count

    def resolved(operands: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([first - 1 - node if node < 0 else node for node in operands])

    for node, operands in step.clones:
        draft.clone(node, resolved(operands))
    for node, operands in step.moved.items():
        draft.rewire(node, resolved(operands), draft.renamed(node, resolved(operands)))
    if step.readers:
        renamed = draft.renamed_by(
            step.dropped, first + [node for node, _ in step.clones].index(step.maker)
        )
        for node, operands in step.readers.items():
            draft.rewire(node, resolved(operands), renamed)
    order = [node for node in state.order if node not in step.moved]
    place = order.index(step.before)
    order[place:place] = [*range(first, draft.count), *step.moved]
    return draft.finish(order)


def take_back(state: State, clone: int, other: int) -> tuple[State, list[int]]:
    """The program in which readers of a clone read another node, and the clones that are gone."""
    draft = Draft(state)
    gone = draft.merge(clone, other)
    dropped = set(gone)
    return draft.finish([node for node in state.order if node not in dropped]), gone


class Draft:
    def __init__(self, state: State) -> None:
        flow = state.flow
        self._state = state
        self._values = list(flow.values)
        self._sizes = list(flow.sizes)
        self._full = list(state.full)
        self._made_by = list(flow.made_by)
        self._read_by = list(flow.read_by)
        self._shares = dict(flow.shares)
        self._origin = list(state.origin)
        self._operands = list(state.operands)
        self._holds = list(state.holds)

    @property
    def count(self) -> int:
        return len(self._origin)

    def finish(self, order: list[int]) -> State:
        flow = replace(
            self._state.flow,
            values=self._values,
            sizes=self._sizes,
            made_by=self._made_by,
            read_by=self._read_by,
            shares=self._shares,
        )
        return replace(
            self._state,
            flow=flow,
            order=order,
            origin=self._origin,
            operands=self._operands,
            holds=self._holds,
            full=self._full,
        )

    def clone(self, node: int, operands: tuple[int, ...]) -> int:
        """A node like another, with operands of its own; it has no position yet."""
        number = len(self._origin)
        renamed = self.renamed(node, operands)
        made: list[int] = []
        for value in self._made_by[node]:
            renamed[value] = len(self._values)
            made.append(len(self._values))
            buffer = self._buffer_over(node, value, renamed)
            if buffer is None:
                buffer, size = len(self._sizes), self._full[self._values[value].buffer]
                self._sizes.append(size)
                self._full.append(size)
            self._values.append(FlowValue(buffer, number, (), False))
        self._origin.append(self._origin[node])
        self._operands.append(operands)
        self._holds.append(tuple([renamed.get(value, value) for value in self._holds[node]]))
        self._made_by.append(made)
        read = [renamed.get(value, value) for value in self._read_by[node]]
        self._read_by.append(read)
        for value in read:
            self._touch(value, number)
        self._share(node, number, renamed)
        return number

    def _buffer_over(self, node: int, value: int, renamed: Mapping[int, int]) -> int | None:
        """The buffer of the clone that a clone writes its value over; None where it does not."""
        buffer = self._values[value].buffer
        for read in self._read_by[node]:
            if self._values[read].buffer == buffer and read in renamed:
                return self._values[renamed[read]].buffer
        return None

    def rewire(self, node: int, operands: tuple[int, ...], renamed: Mapping[int, int]) -> None:
        """Let a node read other operands; those it has in common with others hold other values."""
        old = self._read_by[node]
        new = list(dict.fromkeys([renamed.get(value, value) for value in old]))
        self._operands[node] = operands
        self._read_by[node] = new
        for value in set(old) - set(new):
            self._leave(value, node)
        for value in set(new) - set(old):
            self._touch(value, node)
        self._share(node, node, renamed)
        if self._state.flow.nodes[self._origin[node]].opcode in (*FORWARDS, "tuple"):
            self._holds[node] = tuple([renamed.get(value, value) for value in self._holds[node]])

    def renamed(self, node: int, operands: tuple[int, ...]) -> dict[int, int]:
        """The values of the old operands, and those of the new ones that replace them."""
        return {
            old: new
            for before, after in zip(self._operands[node], operands, strict=True)
            if before != after
            for old, new in zip(self._holds[before], self._holds[after], strict=True)
        }

    def renamed_by(self, value: int, clone: int) -> dict[int, int]:
        made = self._made_by[self._values[value].made_by]
        return {value: self._made_by[clone][made.index(value)]}

    def renamed_all(self, node: int, clone: int) -> dict[int, int]:
        """All values of a node, and those of its clone."""
        return dict(zip(self._made_by[node], self._made_by[clone], strict=True))

    def merge(self, clone: int, other: int) -> list[int]:
        """Let all that read a clone read another node; the clones that are gone by that."""
        renamed = {
            old: new
            for old, new in zip(self._holds[clone], self._holds[other], strict=True)
            if old != new
        }
        users = self._users(clone)
        for value in self._made_by[clone]:
            users.update(self._values[value].readers)
        for node in users:
            operands = tuple([other if one == clone else one for one in self._operands[node]])
            self.rewire(node, operands, renamed)
        return self._remove([clone])

    def _remove(self, unread: Sequence[int]) -> list[int]:
        """Remove unused clones, and those that only they have read."""
        gone: list[int] = []
        pending = list(unread)
        while pending:
            node = pending.pop()
            if node in gone:
                continue
            gone.append(node)
            for value in self._read_by[node]:
                self._leave(value, node)
            operands = set(self._operands[node])
            self._read_by[node], self._operands[node], self._made_by[node] = [], (), []
            pending += [
                operand
                for operand in sorted(operands)
                if operand >= self._state.count and not self._users(operand)
            ]
        return gone

    def _users(self, node: int) -> set[int]:
        return {user for user, operands in enumerate(self._operands) if node in operands}

    def _leave(self, value: int, node: int) -> None:
        known = self._values[value]
        readers = tuple([reader for reader in known.readers if reader != node])
        self._values[value] = known._replace(readers=readers)

    def _touch(self, value: int, node: int) -> None:
        known = self._values[value]
        if node not in known.readers:
            self._values[value] = known._replace(readers=(*known.readers, node))

    def _share(self, node: int, target: int, renamed: Mapping[int, int]) -> None:
        if node in self._shares:
            self._shares[target] = [
                (
                    renamed.get(value, value),
                    tuple([renamed.get(candidate, candidate) for candidate in candidates]),
                )
                for value, candidates in self._shares[node]
            ]


def relax(state: State, costs: Costs, wanted: int) -> State:
    """The state without the clones that are not needed to keep no more than so many bytes alive."""
    relaxed = _Relaxation(state, costs, wanted)
    relaxed.run()
    return settle(relaxed.state)


def settle(state: State) -> State:
    """The state in which a node runs where its clone does if all its readers read the clone."""
    for clone in reversed(state.clone_nodes()):
        node = state.origin[clone]
        if not _is_unread(state, node) or not state.may_repeat(node):
            continue
        if any(state.writes_over(node, operand) for operand in state.operands[node]):
            continue  # what it writes over would have to come with it
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
    if node >= state.count or any(node in operands for operands in state.operands):
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
        return self._costs.weight(self.state.instruction(node))

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
        if state.limits(clone):
            return None  # another is written over it
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
        kept = sum([flow.size(value) for value in flow.made_by[clone]])
        freed, pending, seen = 0, [clone], set()
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            for value in flow.read_by[node]:
                if self._last[value] <= place:
                    freed += flow.size(value)
            pending += [operand for operand in state.operands[node] if operand >= state.count]
        return max(self._levels[start:place], default=0) + kept - freed <= self._wanted
