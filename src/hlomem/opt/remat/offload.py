"""Values that wait in the host's memory while they are not needed, to fit a memory budget.

A value is copied out as soon as it is there and back before its next reader, around the
instructions for which too much is alive, as XLA's own copies (`hlo_rematerialization.cc`,
`HostOffload`). The value is moved whose copies are hidden best (`opt/orders/cost.py`). Bytes are
counted without packing; the caller plans the result.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.quantities import Color
from hlomem.hlo.body_draft import unused_name
from hlomem.hlo.rewrite import Rewriter
from hlomem.hlo.shape import default_layout
from hlomem.opt.constants import HOST_FACTOR, LATENCY, MAX_MOVES
from hlomem.opt.orders.cost import Times
from hlomem.opt.remat.state import State, start_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.hlo.ir import HloInstruction, HloModule
    from hlomem.pipeline import Stages

_CONTEXT = "u32[]"
"""The shape of a copy's context, the third part of its start."""


class Move(NamedTuple):
    """A value that goes to the host and comes back; all by the names of instructions."""

    value: str
    """The instruction whose result is moved."""
    leaves_before: str
    """The instruction before which the copy to the host has ended."""
    returns_before: str
    """The instruction before which the copy back begins."""
    read_by: str
    """The first that reads it again; the copy back ends before it."""
    readers: tuple[str, ...]
    """All that read what came back."""
    views: tuple[str, ...]
    """Bitcasts of the value that they read, operands first, which are made again of it."""
    size: int


class _Gap(NamedTuple):
    """A stretch of the order in which a value is alive, but unused."""

    value: int
    holder: int
    """The node whose result it is, an array."""
    views: tuple[int, ...]
    """Bitcasts of that, through which later readers read it."""
    first: int
    """Its first place: the node before has touched the value."""
    end: int
    """The position of the node that reads it next."""
    readers: tuple[int, ...]


class _Offer(NamedTuple):
    """A value that may be away, and what that costs."""

    gap: _Gap
    first: int
    """The first place at which it is away."""
    last: int
    size: int
    unhidden: int
    """The time by which its copies take longer than what runs alongside them."""

    def rank(self) -> tuple[float, int]:
        """The least waiting for a byte first, then the largest."""
        return (self.unhidden + LATENCY) / self.size, -self.size


def choose_moves(stages: Stages, target: int) -> list[Move]:
    """Moves after which no more than a number of bytes is alive, or as far as moves lead."""
    return _Chooser(stages).run(target)


class _Chooser:
    def __init__(self, stages: Stages) -> None:
        state = start_state(stages)
        times = Times(stages.options.machine)
        self._flow = state.flow
        self._levels = state.levels()
        self._gaps = [gap for value in range(len(state.flow.values)) for gap in _gaps(state, value)]
        self._clock = [0, *accumulate(map(times.of, state.flow.nodes))]
        """The time before each place."""

    def run(self, target: int) -> list[Move]:
        moves: list[Move] = []
        while len(moves) < MAX_MOVES and (peak := max(self._levels, default=0)) > target:
            place = self._levels.index(peak)
            full = [at for at, level in enumerate(self._levels) if level > target]
            offers = [self._offer(gap, full) for gap in self._gaps if gap.first <= place < gap.end]
            if not offers:
                break
            best = min(offers, key=_Offer.rank)
            moves.append(self._take(best))
        return moves

    def _offer(self, gap: _Gap, full: Sequence[int]) -> _Offer:
        """A value that is away from the first place in a gap that is too full to the last."""
        first = full[bisect_left(full, gap.first)]
        last = full[bisect_left(full, gap.end) - 1]
        size = self._flow.sizes[self._flow.values[gap.value].buffer]
        copy = HOST_FACTOR * size
        out = self._clock[first] - self._clock[gap.holder + 1]
        back = self._clock[gap.end] - self._clock[last + 1]
        return _Offer(gap, first, last, size, max(copy - out, 0) + max(copy - back, 0))

    def _take(self, offer: _Offer) -> Move:
        gap = offer.gap
        for place in range(offer.first, offer.last + 1):
            self._levels[place] -= offer.size
        self._gaps = [other for other in self._gaps if other.value != gap.value]
        nodes = self._flow.nodes
        return Move(
            value=nodes[gap.holder].name,
            leaves_before=nodes[offer.first].name,
            returns_before=nodes[offer.last + 1].name,
            read_by=nodes[gap.end].name,
            readers=tuple(nodes[reader].name for reader in gap.readers),
            views=tuple(nodes[view].name for view in gap.views),
            size=offer.size,
        )


def _gaps(state: State, number: int) -> Iterator[_Gap]:
    """The stretches in which a value could be away."""
    flow = state.flow
    value = flow.values[number]
    is_alone = len(flow.buffers[value.buffer].values) == 1
    if not flow.sizes[value.buffer] or value.made_by < 0 or value.lives_on or not is_alone:
        return
    touches = sorted({value.made_by, *value.readers})
    for place, (before, after) in enumerate(pairwise(touches), start=1):
        later = tuple(touches[place:])
        views = _views(state, number, later, before)
        if after - before > 1 and views is not None:
            yield _Gap(number, views[0], tuple(views[1:]), before + 1, after, later)


def _views(state: State, value: int, later: Sequence[int], before: int) -> list[int] | None:
    """The node whose result a value is, and bitcasts that later ones read; None without one."""
    nodes = state.flow.nodes
    if any(nodes[node].opcode == "tuple" for node in later):
        return None  # a loop may begin with it, and with its memory
    found: set[int] = set()
    pending = {
        operand
        for node in later
        for operand in state.operands[node]
        if value in state.holds[operand] and operand <= before
    }
    while pending:
        node = pending.pop()
        found.add(node)
        if nodes[node].opcode == "bitcast":
            pending.add(state.operands[node][0])
    views = sorted(found)
    first, *others = views
    is_it = nodes[first].shape.is_array and state.holds[first] == (value,)
    return views if is_it and all(nodes[node].opcode == "bitcast" for node in others) else None


def model_moves(stages: Stages, moves: Sequence[Move]) -> float:
    """The time with values moved, divided by that without; copies of each way queue up."""
    nodes = stages.schedule.sequence(stages.module.entry)
    events: dict[str, list[tuple[str, Move]]] = {}
    following = {one.name: other.name for one, other in pairwise(nodes)}
    for move in moves:
        events.setdefault(following[move.value], []).append(("out", move))
        events.setdefault(move.leaves_before, []).append(("is out", move))
        events.setdefault(move.returns_before, []).append(("back", move))
        events.setdefault(move.read_by, []).append(("is back", move))
    times = Times(stages.options.machine)
    clock = total = 0
    free = {"out": 0, "back": 0}
    ends: dict[tuple[str, str], int] = {}
    for node in nodes:
        for event, move in events.get(node.name, ()):
            way = event.removeprefix("is ")
            if way == event:
                free[way] = max(clock, free[way]) + HOST_FACTOR * move.size
                ends[way, move.value] = free[way]
            else:
                clock = max(clock, ends[way, move.value])
        clock, total = clock + times.of(node), total + times.of(node)
    return max(clock, *free.values()) / total if total else 1.0


# The edit.


def make_moves(module: HloModule, moves: Sequence[Move], color: int) -> HloModule:
    """The module with values moved to a memory space and back."""
    rewriter = Rewriter(module)
    known = {instruction.name: instruction for instruction in module.entry.instructions}
    following = dict(pairwise(module.entry.instructions))
    taken = set(known)

    def add(before: HloInstruction, name: str, shape: str, read: HloInstruction) -> HloInstruction:
        free = unused_name(name, taken)
        taken.add(free)
        opcode = "copy-start" if shape.startswith("(") else "copy-done"
        return rewriter.insert(before, free, shape, opcode, [read])

    for move in moves:
        value = known[move.value]
        layout = value.shape.layout or default_layout(value.shape.rank)
        layout = layout._replace(memory_space=Color(color))
        here, there = value.shape.text, value.shape.with_layout(layout).text
        out, back = f"({there}, {here}, {_CONTEXT})", f"({here}, {there}, {_CONTEXT})"
        copy = add(following[value], f"{value.name}.offload-start", out, value)
        copy = add(known[move.leaves_before], f"{value.name}.offload-done", there, copy)
        copy = add(known[move.returns_before], f"{value.name}.fetch-start", back, copy)
        copy = add(known[move.read_by], f"{value.name}.fetch-done", here, copy)
        made = {value: copy}
        for view in map(known.__getitem__, move.views):
            again = rewriter.insert(
                known[move.read_by],
                unused_name(f"{view.name}.fetched", taken),
                view.shape,
                view.opcode,
                [made[view.operands[0]]],
                attributes=view.attributes,
                like=view,
            )
            made[view] = again
            taken.add(again.name)
        for reader in map(known.__getitem__, move.readers):
            for number, operand in enumerate(reader.operands):
                if operand in made:
                    rewriter.set_operand(reader, number, made[operand])
    return rewriter.finish()
