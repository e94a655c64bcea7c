"""The steps at which values of a program can be read: the order, and what is written over."""

from __future__ import annotations

from functools import cached_property

from hlomem.opt.remat.state import FORWARDS, State


class Places:
    """The order of a state, and until when all that each node holds is there."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.of = places = [-1] * len(state.origin)
        """By node its position in the order."""
        for place, node in enumerate(state.order):
            places[node] = place
        self.last = [
            len(places)
            if value.lives_on
            else max([places[reader] for reader in value.readers], default=-1)
            for value in state.flow.values
        ]
        """By value the position of its last reader; after all positions if it lives on."""
        self.intact_until = [
            min([places[writer] for writer in state.limits(node)], default=len(places))
            for node in range(len(places))
        ]
        """By node the first place at which a next value is written over what it holds."""
        self._there_until = [
            min([self.last[value] for value in held], default=len(places)) for held in state.holds
        ]
        self._there_until = list(map(min, self._there_until, self.intact_until))
        self._copies: dict[int, list[int]] = {}
        for node in state.clone_nodes():
            self._copies.setdefault(state.origin[node], []).append(node)

    def find_copy(self, node: int, place: int) -> int | None:
        """The node or a clone of the same of which all is alive at a place, not written over."""
        places, until = self.of, self._there_until
        if places[node] < place <= until[node]:
            return node
        origin = self._state.origin[node]
        if node != origin and places[origin] < place <= until[origin]:
            return origin
        for copy in self._copies.get(origin, ()):
            if places[copy] < place <= until[copy]:
                return copy
        return None

    def is_read_once(self, node: int) -> bool:
        """Whether a node has one reader, and hands on nothing of another's."""
        return len(self._users[node]) == 1 and self._state.instruction(node).opcode not in FORWARDS

    def is_taken_over(self, value: int, place: int) -> bool:
        """Whether what runs at a place may write its result over a value, once that is unread."""
        if place < 0:
            return False
        shares = self._state.flow.shares.get(self._state.order[place], ())
        return any(value in candidates for _, candidates in shares)

    def movable(self, value: int, place: int) -> list[int]:
        """The nodes that make and forward a value, if it is unread before a position; else none."""
        state, places = self._state, self.of
        maker = state.flow.values[value].made_by
        if any(state.flow.values[made].lives_on for made in state.flow.made_by[maker]):
            return []
        found = {maker}
        pending = [maker]
        while pending:
            early = {user for user in self._users[pending.pop()] if places[user] < place}
            if any(state.instruction(node).opcode not in FORWARDS for node in early):
                return []
            pending += early - found
            found |= early
        if any(self._is_awaited(node, place) for node in found):
            return []
        return sorted(found, key=lambda node: places[node])

    def _is_awaited(self, node: int, place: int) -> bool:
        """Whether something before a place waits for a node."""
        state = self._state
        return node < state.count and any(self.of[one] < place for one in state.waiting[node])

    @cached_property
    def _users(self) -> list[list[int]]:
        """By node those that it is an operand of, parts that are no temporaries included."""
        users: list[list[int]] = [[] for _ in self._state.origin]
        for node in self._state.order:
            for operand in set(self._state.operands[node]):
                users[operand].append(node)
        return users
