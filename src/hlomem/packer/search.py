"""Exact search for a packing within a capacity (docs/packing.md has a picture).

If any packing fits, one minimizes the sum of size × life × offset: no buffer can move down, and no
long buffer is on shorter ones that it could be swapped with. Only such packings are searched. A
step takes a buffer with no unplaced buffer below it and decides: it is as low as it can be, or it
is above a buffer that is still unplaced. Either way the earliest offsets of unplaced buffers rise,
and a section is infeasible once the buffers at or above some height exceed the bytes above it.

Sections are lanes of one long integer, so that one addition and one `&` check all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.packer.instance import Instance

Outcome = Literal["fits", "does not fit", "unknown"]

_STEP_WORK = 1 << 14
"""Buffers × sections per step; a larger decision counts as several steps."""


def decision_steps(unplaced: int, sections: int) -> int:
    return 1 + unplaced * sections // _STEP_WORK


class _State(NamedTuple):
    """A group of unplaced buffers that overlap in time, directly or indirectly."""

    unplaced: list[int]
    """By rank."""
    earliest: list[int]
    """A lower bound of each offset, by number."""
    support: list[int]
    """The lowest offset above the placed buffers, by number."""
    delayed: dict[int, int]
    """Buffers above their support: another must begin below this height."""
    ordered: list[int]
    """The unplaced by earliest offset, then rank."""


_Key = tuple[object, ...]


def _key_of(state: _State) -> _Key:
    """A key of everything the search from a state depends on, except swaps with placed buffers."""
    unplaced, earliest, support, delayed, _ = state
    return (
        tuple(unplaced),
        tuple([earliest[b] for b in unplaced]),
        tuple([support[b] for b in unplaced]),
        frozenset(delayed.items()),
    )


def _part_of(state: _State, members: set[int]) -> _State:
    return state._replace(
        unplaced=[b for b in state.unplaced if b in members],
        delayed={b: height for b, height in state.delayed.items() if b in members},
        ordered=[b for b in state.ordered if b in members],
    )


class _Choice(NamedTuple):
    """A placed buffer, whose alternative is open."""

    state: _State
    buffer: int
    placed: int
    """The number of buffers placed before."""
    goals: _Goals | None
    key: _Key
    group: tuple[_Key, int]
    """The key of the buffer's group, and the number of choices before it."""


class _Goals(NamedTuple):
    """Other groups to place after this one."""

    state: _State
    key: _Key
    choices: int
    """The number of choices before this group and its siblings."""
    rest: _Goals | None


class Search:
    def __init__(
        self, instance: Instance, capacity: int, ranking: Sequence[int], follows_conflicts: bool
    ) -> None:
        self.steps = 0
        self.conflicts = [0] * instance.section_count
        """The number of times each section was infeasible."""
        self.offsets = [-1] * instance.count
        self._instance = instance
        self._ranking = ranking
        self._rank = [0] * instance.count
        for rank, b in enumerate(ranking):
            self._rank[b] = rank
        self._follows_conflicts = follows_conflicts
        self._focus = -1  # the last infeasible section
        self._placed: list[int] = []
        self._choices: list[_Choice] = []
        self._goals: _Goals | None = None
        self._group: tuple[_Key, int] = (), 0
        self._failed: set[_Key] = set()  # keys searched without success
        self._when = [0] * instance.count  # the number of buffers placed before each
        self._traded: list[int] = []  # by choice, the first buffer of swaps since then
        self._state: _State | None = None
        self._witness: list[int] = [-1] * instance.count  # a buffer seen below each
        self._set_capacity(capacity)
        self._find_twins()

    def _set_capacity(self, capacity: int) -> None:
        instance = self._instance
        unit = instance.unit
        self._units = units = capacity // unit
        self._last = [(capacity - buffer.size) // unit for buffer in instance.buffers]
        # Padding may protrude from the heap, which gives the topmost buffer one more unit.
        self._sticks_out = [(capacity + padding) // unit > units for padding in instance.padding]
        self._may_stick_out = any(self._sticks_out)
        bits = self._bits = (units + 1).bit_length() + 1
        lane = [1 << bits * section for section in range(instance.section_count)]
        self._lanes = [
            sum(sum(lane[first:end]) for first, end in ranges) for ranges in instance.ranges
        ]
        self._weights = [size * lane for size, lane in zip(instance.size, self._lanes, strict=True)]
        ones = sum(lane)
        self._overflow = ones << (bits - 1)
        self._spare = ones * ((1 << (bits - 1)) - 1 - units)
        self._is_hopeless = max(instance.loads, default=0) > units + self._may_stick_out

    def _find_twins(self) -> None:
        """Link equal buffers, which are stacked in the order of rank."""
        instance = self._instance
        self._lower_twin = [-1] * instance.count
        self._upper_twin = [-1] * instance.count
        facts = list(
            zip(instance.masks, instance.size, instance.padding, instance.alignment, strict=True)
        )
        newest: dict[tuple[int, int, int, int], int] = {}
        for b in self._ranking:
            key = facts[b]
            if key in newest:
                self._lower_twin[b] = newest[key]
                self._upper_twin[newest[key]] = b
            newest[key] = b

    def run(self, max_steps: int) -> Outcome:
        if not self._instance.count:
            return "fits"
        self._begin()
        while self._state is not None:
            state = self._state
            self.steps += decision_steps(len(state.unplaced), len(self.conflicts))
            if self.steps > max_steps:
                return "unknown"
            b = self._pick(state)
            before = len(self._placed)
            after = self._place(state, b)
            if after is None:
                self._state = self._delay(state, b)
            else:
                key = _key_of(after)
                self._choices.append(_Choice(state, b, before, self._goals, key, self._group))
                self._traded.append(self._instance.count)
                self._enter(after, key)
                if len(self._placed) == self._instance.count:
                    return "fits"
            while self._state is None and self._choices:
                self._take_back()
        return "does not fit"

    def _begin(self) -> None:
        """Start with nothing placed; twins are above each other."""
        if self._is_hopeless or min(self._last) < 0:
            return
        count = self._instance.count
        earliest = [0] * count
        for b in self._ranking:
            if self._lower_twin[b] >= 0:
                earliest[b] = earliest[self._lower_twin[b]] + self._instance.size[b]
                if earliest[b] > self._last[b]:
                    return
        state = self._bounded(_State(list(self._ranking), earliest, [0] * count, {}, []))
        if state is not None:
            self._enter(state, _key_of(state))

    def _enter(self, state: _State, key: _Key) -> None:
        """Continue with the remaining buffers, or with the next group."""
        self._state = None
        if state.unplaced:
            self._divide(state, key)
        elif self._goals is not None:
            # Groups are independent: the choices of a finished one are final.
            self._state, key, choices, self._goals = self._goals
            del self._choices[choices:]
            del self._traded[choices:]
            self._group = key, choices

    def _take_back(self) -> None:
        group_key, choices = self._group
        is_group_done = choices == len(self._choices)
        state, b, placed, self._goals, key, self._group = self._choices.pop()
        traded = self._traded.pop()
        # After a swap with an earlier buffer, another arrangement of placed buffers might succeed.
        if traded > placed:
            self._failed.add(key)
            if is_group_done:
                self._failed.add(group_key)
        if self._traded:
            self._traded[-1] = min(self._traded[-1], traded)
        for other in self._placed[placed:]:
            self.offsets[other] = -1
        del self._placed[placed:]
        self._state = self._delay(state, b)

    def _divide(self, state: _State, key: _Key) -> None:
        """Continue with the smallest group that is disjoint in time; the others become goals."""
        if key in self._failed:
            return
        groups = self._groups(state.unplaced)
        if len(groups) == 1:
            self._state = state
            return
        choices = len(self._choices)
        entries = []
        for group in sorted(groups, key=len):
            part = _part_of(state, set(group))
            part_key = _key_of(part)
            if part_key in self._failed:
                return
            entries.append((part, part_key))
        for other, other_key in reversed(entries[1:]):
            self._goals = _Goals(other, other_key, choices, self._goals)
        self._state, self._group = entries[0][0], (entries[0][1], choices)

    def _groups(self, unplaced: Sequence[int]) -> list[list[int]]:
        ranges = self._instance.ranges
        groups: list[list[int]] = []
        group_end = -1
        for b in sorted(unplaced, key=lambda b: ranges[b][0][0]):
            if ranges[b][0][0] >= group_end:
                groups.append([])
            groups[-1].append(b)
            group_end = max(group_end, ranges[b][-1][1])
        return groups

    def _pick(self, state: _State) -> int:
        """The buffer to decide on: the lowest possible one, overall or in the focus."""
        if not self._follows_conflicts or self._focus < 0:
            return state.ordered[0]
        members = set(state.unplaced)
        candidates = [b for b in self._instance.sections[self._focus] if b in members]
        if not candidates:
            return state.ordered[0]
        while True:
            b = min(candidates, key=lambda b: (state.earliest[b], self._rank[b]))
            candidates = self._first_to_decide(state, b)
            if not candidates:
                return b

    def _first_to_decide(self, state: _State, b: int) -> list[int]:
        """Buffers that may or must be below a buffer, and have to be decided before it."""
        earliest, offsets, size = state.earliest, self.offsets, self._instance.size
        offset = earliest[b]
        unplaced = [d for d in self._instance.neighbours[b] if offsets[d] < 0]
        below = [d for d in unplaced if earliest[d] + size[d] <= offset]
        if below:
            return below
        if b in state.delayed:
            return [d for d in unplaced if earliest[d] < offset]
        return [self._lower_twin[b]] if offset > state.support[b] else []

    def _place(self, state: _State, b: int) -> _State | None:
        offset = state.support[b]
        if self._could_trade(b, offset):
            return None
        self.offsets[b] = offset
        self._when[b] = len(self._placed)
        self._placed.append(b)
        earliest, support = state.earliest[:], state.support[:]
        after = _State(
            [d for d in state.unplaced if d != b], earliest, support, dict(state.delayed), []
        )
        if self._raise_neighbours(after, b):
            settled = self._settled(after)
            if settled is not None:
                return settled
        self.offsets[b] = -1
        self._placed.pop()
        return None

    def _raise_neighbours(self, state: _State, b: int) -> bool:
        """Raise the neighbours above a buffer; whether all of them end below the capacity."""
        _, earliest, support, delayed, _ = state
        offsets, last, alignment = self.offsets, self._last, self._instance.alignment
        offset = offsets[b]
        top = offset + self._instance.size[b]
        for d in self._instance.neighbours[b]:
            if offsets[d] >= 0:
                continue
            if support[d] < top:
                support[d] = lifted = -(-top // alignment[d]) * alignment[d]
                if earliest[d] < lifted:
                    earliest[d] = lifted
                    if lifted > last[d]:
                        self._blame(self._instance.ranges[d][0][0])
                        return False
            if d in delayed and offset < delayed[d]:
                del delayed[d]
        return True

    def _delay(self, state: _State, b: int) -> _State | None:
        """The state with the buffer above its support; None if that is infeasible."""
        state.delayed[b] = state.support[b] + self._instance.size[b]
        return self._settled(state)

    def _settled(self, state: _State) -> _State | None:
        """The state with earliest offsets raised by delays; None if it is infeasible."""
        earliest, delayed = state.earliest, state.delayed
        is_changed = True
        while is_changed:
            is_changed = False
            for b, height in delayed.items():
                end = self._lowest_end(earliest, b, height)
                if end is None:
                    self._blame(self._instance.ranges[b][0][0])
                    return None
                if end > earliest[b]:
                    step = self._instance.alignment[b]
                    earliest[b] = -(-end // step) * step
                    if not self._raise_twins(earliest, b):
                        self._blame(self._instance.ranges[b][0][0])
                        return None
                    is_changed = True
        return self._bounded(state)

    def _lowest_end(self, earliest: list[int], b: int, height: int) -> int | None:
        """The lowest end of a buffer that can be below a delayed one, if any."""
        offsets, size = self.offsets, self._instance.size
        seen = self._witness[b]
        if seen >= 0 and offsets[seen] < 0 and earliest[seen] < height:
            end = earliest[seen] + size[seen]
            if end <= earliest[b]:  # no other raises it
                return end
        ends = [
            (earliest[d] + size[d], d)
            for d in self._instance.neighbours[b]
            if offsets[d] < 0 and earliest[d] < height
        ]
        if not ends:
            return None
        end, self._witness[b] = min(ends)
        return end

    def _raise_twins(self, earliest: list[int], b: int) -> bool:
        """Raise the twins above a buffer; whether all end below the capacity."""
        size, last = self._instance.size[b], self._last[b]
        above = self._upper_twin[b]
        while above >= 0 and earliest[above] < earliest[b] + size:
            earliest[above] = earliest[b] + size
            b, above = above, self._upper_twin[above]
        return earliest[b] <= last

    def _bounded(self, state: _State) -> _State | None:
        """The state with its buffers in order; None if some section is infeasible."""
        earliest, lanes, weights = state.earliest, self._lanes, self._weights
        overflow, total = self._overflow, self._spare
        may_stick_out, sticks_out = self._may_stick_out, self._sticks_out
        ordered = sorted(state.unplaced, key=earliest.__getitem__)
        topmost = 0  # a unit less in each section whose padding may protrude
        for b in reversed(ordered):
            total += weights[b]
            if may_stick_out and sticks_out[b]:
                topmost |= lanes[b]
            if wrong := (total - topmost + earliest[b] * lanes[b]) & overflow:
                self._blame(((wrong & -wrong).bit_length() - 1) // self._bits)
                return None
        return state._replace(ordered=ordered)

    def _blame(self, section: int) -> None:
        self._focus = section
        self.conflicts[section] += 1

    def _could_trade(self, b: int, offset: int) -> bool:
        """Whether a buffer would be on shorter ones that could as well be on it."""
        instance = self._instance
        if not offset or instance.is_aligned or offset + instance.size[b] > self._units:
            return False
        offsets, size, masks = self.offsets, instance.size, instance.masks
        below = [d for d in instance.neighbours[b] if offsets[d] >= 0]
        moved = [d for d in below if offsets[d] + size[d] == offset]
        level = offset
        while not any(masks[d] & ~masks[b] for d in moved):
            lowest = min(offsets[d] for d in moved)
            if lowest == level:
                break
            level = lowest
            moved = [d for d in below if offsets[d] + size[d] > level]
        else:
            return False
        if all(masks[d] == masks[b] for d in moved) and self._rank[moved[0]] < self._rank[b]:
            return False
        if self._traded:
            self._traded[-1] = min(self._traded[-1], *(self._when[d] for d in moved))
        return True
