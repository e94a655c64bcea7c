"""Bytes that the temporaries of every order need at some moment, however they are packed.

While a node runs, a value is alive in any order if the node needs its maker, and a reader of it
needs the node; so is what the node makes, unless it may be written over an operand, and what it
calls. Of these bytes one buffer may lie in each result's memory that is not filled by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.opt.constants import MAX_BOUND_NODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hlomem.opt.orders.flow import Flow, FlowValue


class Moment(NamedTuple):
    """A moment that every order of a computation has."""

    size: int
    """Bytes that are needed then, less what may be written over something else."""
    buffers: tuple[int, ...]
    """Bytes of each buffer that is alive then."""


NO_MOMENT = Moment(0, ())


def lower_bound(flow: Flow, *, may_borrow: bool = True) -> int | None:
    """The bound, without `may_borrow` of the peak of `model.py`; None for large computations."""
    found = find_moment(flow, {}, may_borrow=may_borrow)
    return None if found is None else found.size


def find_moment(
    flow: Flow, inside: Mapping[int, Moment], *, may_borrow: bool = True
) -> Moment | None:
    """The moment that bounds a computation, given those of its callees; None where it is large."""
    count = len(flow.nodes)
    if count > MAX_BOUND_NODES:
        return None
    reach = _Reach(flow)
    alive = _Alive(flow, reach)
    if may_borrow and flow.lenders:
        return Moment(_less_borrowed(_Loans(flow, reach, inside), alive), ())
    most = max(range(count), key=lambda node: alive.sizes[node], default=-1)
    if most < 0 or alive.sizes[most] <= 0:
        return NO_MOMENT
    own = tuple(flow.sizes[buffer] for buffer in alive.at([most])[most])
    return Moment(alive.sizes[most], (*own, *inside.get(most, NO_MOMENT).buffers))


def _less_borrowed(loans: _Loans, alive: _Alive) -> int:
    """The most that a node needs outside of borrowed memory."""
    most = 0
    for node, buffers in alive.in_turn():
        if alive.sizes[node] <= most:
            break
        most = max(most, alive.sizes[node] - loans.borrowed(node, buffers))
    return most


class _Alive:
    """The buffers that are alive at each node in any order, and their bytes."""

    def __init__(self, flow: Flow, reach: _Reach) -> None:
        inside_at: dict[int, int] = {}
        for node, buffers in flow.counted_inside.items():
            for buffer in buffers:
                inside_at[buffer] = inside_at.get(buffer, 0) | 1 << node
        alive_at: dict[int, int] = {}
        for value in flow.values:
            alive_at[value.buffer] = alive_at.get(value.buffer, 0) | reach.alive_at(value)
        self._nodes_of = {
            buffer: nodes & ~inside_at.get(buffer, 0) for buffer, nodes in alive_at.items()
        }
        count = len(flow.nodes)
        weights = ((nodes, flow.sizes[buffer]) for buffer, nodes in self._nodes_of.items())
        self.sizes = [
            size + flow.inner.get(node, 0) - written_over(flow, node)
            for node, size in enumerate(weigh(weights, count))
        ]
        """Bytes by node, with what it calls, without what may be written over something else."""

    def at(self, nodes: Sequence[int]) -> dict[int, list[int]]:
        wanted = sum(1 << node for node in nodes)
        found: dict[int, list[int]] = {node: [] for node in nodes}
        for buffer, alive in self._nodes_of.items():
            for node in _members(alive & wanted):
                found[node].append(buffer)
        return found

    def in_turn(self) -> Iterator[tuple[int, list[int]]]:
        """The nodes and buffers, those that need most first; mostly the first few decide."""
        nodes = sorted(range(len(self.sizes)), key=lambda node: -self.sizes[node])
        first, last = 0, 1
        while first < len(nodes):
            yield from self.at(nodes[first:last]).items()
            first, last = last, 2 * last


def weigh(sets: Iterable[tuple[int, int]], count: int) -> list[int]:
    """The sum of the weights of all sets that a node is in, for every node below `count`.

    In: sets of nodes as bits, and their weights. Numbers are added for all nodes at once, digit by
    digit in binary: first how many sets of each weight there are, then the weights.
    """
    counts: dict[int, list[int]] = {}
    for nodes, weight in sets:
        _add(counts.setdefault(weight, []), nodes, 0)
    digits: list[int] = []
    for weight, counted in counts.items():
        for place, nodes in enumerate(counted):
            for bit in _members(weight):
                _add(digits, nodes, place + bit)
    rows = [f"{nodes:0{count}b}" for nodes in reversed(digits)]
    if not rows:
        return [0] * count
    return [int("".join(column), 2) for column in zip(*rows, strict=True)][::-1]


def _add(digits: list[int], nodes: int, place: int) -> None:
    """Adds 2 ** place to the numbers of some nodes; `digits` are the nodes that have each digit."""
    while nodes:
        if place >= len(digits):
            digits.extend([0] * (place + 1 - len(digits)))
        digits[place], nodes = digits[place] ^ nodes, digits[place] & nodes
        place += 1


class _Loans:
    """The pairs of a buffer and a result in whose memory it may ever lie."""

    def __init__(self, flow: Flow, reach: _Reach, inside: Mapping[int, Moment]) -> None:
        self._flow = flow
        self._inside = inside
        self._alive_at = [reach.alive_at(value) for value in flow.values]
        self._lent_at = [
            [reach.alive_at(value) for value in lender.values] for lender in flow.lenders
        ]
        self._free_at = []
        for lender in flow.lenders:
            filled = 0
            for value in lender.values:
                filled |= reach.alive_around(value)
            self._free_at.append(reach.all & ~filled)
        self._members: list[list[int]] = [[] for _ in flow.sizes]
        for number, value in enumerate(flow.values):
            self._members[value.buffer].append(number)
        self._known: dict[tuple[int, int], bool] = {}

    def borrowed(self, node: int, buffers: Sequence[int]) -> int:
        """The most bytes in borrowed memory while a node runs; a result's holds one buffer."""
        sizes, lenders = self._flow.sizes, self._flow.lenders
        free = [number for number, nodes in enumerate(self._free_at) if nodes >> node & 1]
        called = self._inside.get(node, NO_MOMENT).buffers
        by_lender = largest = 0
        may_lie: set[int] = set()
        for number in free:
            fitting = [buffer for buffer in buffers if self._may_hold(number, buffer)]
            own = max((sizes[buffer] for buffer in fitting), default=0)
            room = lenders[number].size
            by_lender += max((size for size in called if own < size <= room), default=own)
            may_lie.update(fitting)
            largest = max(largest, room)
        most = sum(sizes[buffer] for buffer in may_lie)
        most += sum(size for size in called if size <= largest)
        return min(by_lender, most)

    def _may_hold(self, number: int, buffer: int) -> bool:
        known = self._known.get((number, buffer))
        if known is None:
            known = self._known[number, buffer] = self._find_out(number, buffer)
        return known

    def _find_out(self, number: int, buffer: int) -> bool:
        """Whether no value of a buffer is alive, in every order, with one of the result's."""
        flow, lender = self._flow, self._flow.lenders[number]
        if flow.sizes[buffer] > lender.size:
            return False
        for value in self._members[buffer]:
            for lent, meets, lent_at in zip(
                lender.values, lender.meets, self._lent_at[number], strict=True
            ):
                together = self._alive_at[value] & lent_at
                if value in meets:
                    for maker in (lent.made_by, flow.values[value].made_by):
                        together &= ~(1 << maker) if maker >= 0 else -1
                if together:
                    return False
        return True


class _Reach:
    """The nodes that must run before and after each node, as bits."""

    def __init__(self, flow: Flow) -> None:
        count = len(flow.nodes)
        self.all = (1 << count) - 1
        self._above = reachable(flow.before, range(count))
        self._below = reachable(flow.after, range(count)[::-1])

    def alive_at(self, value: FlowValue) -> int:
        """The nodes while which a value is alive in any order, those that make and read it too."""
        maker = 1 << value.made_by if value.made_by >= 0 else 0
        made = self._below[value.made_by] | maker if maker else self.all
        needed = self.all if value.lives_on else 0
        for reader in value.readers:
            needed |= self._above[reader] | 1 << reader
        return made & needed | maker

    def alive_around(self, value: FlowValue) -> int:
        """The nodes before and after which it is alive, so that nothing reuses its memory there."""
        made = self._below[value.made_by] if value.made_by >= 0 else self.all
        needed = self.all if value.lives_on else 0
        for reader in value.readers:
            needed |= self._above[reader]
        return made & needed


def _members(nodes: int) -> Iterator[int]:
    """The nodes of a set, from the last."""
    bits = f"{nodes:b}"
    last = len(bits) - 1
    place = bits.find("1")
    while place >= 0:
        yield last - place
        place = bits.find("1", place + 1)


def written_over(flow: Flow, node: int) -> int:
    """The most bytes a node's results can take over from what it reads."""
    return sum(
        min(flow.size(value), max(flow.size(candidate) for candidate in candidates))
        for value, candidates in flow.shares.get(node, ())
    )


def reachable(edges: Sequence[Sequence[int]], order: Iterable[int]) -> list[int]:
    """For every node the set of nodes that edges lead to, as bits."""
    found = [0] * len(edges)
    for node in order:
        bits = 0
        for other in edges[node]:
            bits |= found[other] | 1 << other
        found[node] = bits
    return found
