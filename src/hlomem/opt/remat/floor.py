"""Bytes that no recomputation goes below, whatever the order and the packing.

An instruction needs what it reads and makes while it runs. What is not to be recomputed (a loop's
state, what devices exchange, random numbers) waits in addition, from its maker until the last that
needs it: at the first run of a node all such values are there whose maker the node needs, if a
reader of them needs the node. A loop carries its state through all iterations, and donated
arguments are on their way to what takes over their memory (`passage.py`). Left out are stacks,
which a loop writes and does not read, since another loop may recompute them; values that readers
can compute inside (`fused.py`); and what results can be declared to be written over (`over.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.opcodes import RUN_IN_PLACE
from hlomem.opt.constants import MAX_BOUND_NODES, MAX_LAST_MADE, MAX_PASSED
from hlomem.opt.loops.relaid import relaid_from
from hlomem.opt.once import once
from hlomem.opt.orders.bound import reachable, weigh, written_over
from hlomem.opt.orders.effects import Effects, takes_time
from hlomem.opt.orders.flow import FlowBuilder, flows_of
from hlomem.opt.remat.fused import find_inside
from hlomem.opt.remat.last_made import LastMade
from hlomem.opt.remat.over import find_overs, with_overs
from hlomem.opt.remat.passage import Passage
from hlomem.opt.remat.state import is_repeatable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.opt.orders.flow import Flow, FlowLender, FlowValue
    from hlomem.pipeline import Stages

_WRITE = "dynamic-update-slice"
_READ = "dynamic-slice"
_RUNNING = ("call", "while")
_MAX_DEPTH = 8
"""Loops in loops that a stack is followed through."""


class Floor(NamedTuple):
    """The least that the temporaries of a program take."""

    size: int
    """Bytes."""
    instruction: str
    """The name of the instruction that needs them; empty where nothing does."""
    buffers: tuple[int, ...] = ()
    """Bytes of each buffer that is there then."""
    passing: int = 0
    """Bytes of others, which may be several or one."""


_NOTHING = Floor(0, "")


def find_floor(stages: Stages) -> Floor:
    """The floor of a program's temporaries: never too high, but maybe too low to be reached."""
    return once(stages, "floor", lambda: _find_all(stages))


def _find_all(stages: Stages) -> Floor:
    effects = Effects(stages.call_graph)
    stacks, inside = _find_stacks(stages), _find_inside(stages)
    alone = _find(flows_of(stages), stages, effects, stacks | inside)
    if not stages.aliasing.live_out:
        return alone
    # What lies in the memory of results, as well, which is taken off afterwards.
    results = {buffer for buffer in stacks if buffer in stages.aliasing.live_out}
    builder = FlowBuilder(stages, counts_results=True)
    return _find(builder, stages, effects, (stacks | inside) - results, alone)


def _find(
    builder: FlowBuilder,
    stages: Stages,
    effects: Effects,
    stacks: set[HloBuffer],
    known: Floor = _NOTHING,
) -> Floor:
    """The floor of what a builder counts, without what may lie in the memory of results.

    Or one that is known, where that is as high.
    """
    floors: dict[HloComputation, Floor] = {}
    for computation in builder.computations():
        sizes = {callee: floor.size for callee, floor in floors.items()}
        flow = builder.build(computation, sizes)
        flow = with_overs(flow, find_overs(stages, flow))
        is_entry = computation is stages.module.entry
        moments = _Moments(flow, effects, stacks, floors, builder.lent if is_entry else ())
        floors[computation] = moments.find(known if is_entry else _NOTHING)
    return floors.get(stages.module.entry, known)


class _Moments:
    """The buffers that are there at the first run of each node of a computation, at least."""

    def __init__(
        self,
        flow: Flow,
        effects: Effects,
        stacks: set[HloBuffer],
        floors: Mapping[HloComputation, Floor],
        lent: Sequence[int],
    ) -> None:
        self._flow = flow
        self._floors = floors
        self._lent = lent
        """Bytes of each result in whose memory others may lie, where results count, too."""
        self._again = [is_repeatable(node, effects) for node in flow.nodes]
        self._node_of = {instruction: node for node, instruction in enumerate(flow.nodes)}
        self._root = self._node_of[flow.computation.root]
        self._above, self._below = self._reach()
        self._alive = self._find_alive(stacks)
        self._passage = Passage(flow, stacks)
        self._last_made = LastMade(flow, stacks)

    def find(self, known: Floor = _NOTHING) -> Floor:
        """The moment that needs most, without what may lie in the memory of results.

        Or the floor that is known, where none needs more.
        """
        best = self._find_touched(known)
        if self._flow.lenders:
            return best  # which of them is free at other moments is not known
        return self._find_last_made(self._find_passed(best))

    def _find_touched(self, best: Floor) -> Floor:
        """The moment that needs most for what a node touches, and what waits for it."""
        flow, sizes = self._flow, self._sizes
        for node in self._in_turn:
            if sizes[node] <= best.size:
                break
            inside = self._inside(node)
            buffers = (*self._there(node), *inside.buffers)
            free, over = self._free(node) if flow.lenders else (self._lent, 0)
            size = sizes[node] - _borrowed(free, buffers, inside.passing) - over
            if size > best.size:
                best = Floor(size, self._name_of(node), buffers, inside.passing)
        return best

    def _find_passed(self, best: Floor) -> Floor:
        """The same with what is on its way then."""
        flow, sizes = self._flow, self._sizes
        for node in self._in_turn[:MAX_PASSED] if self._passage.most else ():
            if sizes[node] + self._passage.most <= best.size:
                break
            inside = self._inside(node)
            there = {one for one, nodes in self._alive.items() if nodes >> node & 1}
            counted = flow.counted_inside.get(node, frozenset())
            later = self._below[node] if self._below else 0
            known = Floor(sizes[node], "", (*self._there(node), *inside.buffers), inside.passing)
            counts = partial(self._is_higher, known, best)
            more = self._passage.least(there | counted, later, counts)
            if counts(more):
                best = self._with_passing(known, more)._replace(instruction=self._name_of(node))
        return best

    def _is_higher(self, known: Floor, best: Floor, more: int) -> bool:
        return self._with_passing(known, more).size > best.size

    def _with_passing(self, known: Floor, more: int) -> Floor:
        """A moment with so many bytes on their way, less what may lie in the memory of results."""
        passing = known.passing + more
        size = known.size + more - _borrowed(self._lent, known.buffers, passing)
        return known._replace(size=size, passing=passing)

    def _find_last_made(self, best: Floor) -> Floor:
        """The same for the moment when the last of a node's operands is made."""
        for node in self._in_turn[:MAX_LAST_MADE]:
            there = self._last_made.least(node)
            size = there - _borrowed(self._lent, (), there)
            if size > best.size:
                best = Floor(size, self._name_of(node), (), there)
        return best

    @cached_property
    def _sizes(self) -> list[int]:
        """By node the bytes of what is there, and of what it runs."""
        flow = self._flow
        count = len(flow.nodes)
        sizes = weigh(((nodes, flow.sizes[one]) for one, nodes in self._alive.items()), count)
        for node in range(count):
            sizes[node] += flow.inner.get(node, 0) - written_over(flow, node)
        return sizes

    @cached_property
    def _in_turn(self) -> list[int]:
        """The nodes that take time, the hungriest first, and the end."""
        count = len(self._flow.nodes)
        nodes = [node for node in range(count) if node == self._root or self._works(node)]
        return sorted(nodes, key=lambda node: -self._sizes[node])

    def _there(self, node: int) -> list[int]:
        """Bytes of the buffers that are there."""
        return [self._flow.sizes[one] for one, nodes in self._alive.items() if nodes >> node & 1]

    def _works(self, node: int) -> bool:
        return takes_time(self._flow.nodes[node])

    def _name_of(self, node: int) -> str:
        """The name of a node, or of one that it runs; the end of a body is told by what runs it."""
        own = self._flow.nodes[node].name if self._works(node) else ""
        return self._inside(node).instruction or own

    def _inside(self, node: int) -> Floor:
        callees = self._flow.nodes[node].called_computations if node in self._flow.inner else ()
        found = [self._floors.get(callee, _NOTHING) for callee in callees]
        return max(found, key=lambda floor: floor.size, default=_NOTHING)

    def _find_alive(self, stacks: set[HloBuffer]) -> dict[int, int]:
        """By buffer the nodes, as bits, at whose first run it is there."""
        flow = self._flow
        alive: dict[int, int] = {}
        for value in flow.values:
            if flow.buffers[value.buffer] not in stacks:
                alive[value.buffer] = alive.get(value.buffer, 0) | self._nodes_of(value)
        for node, buffers in flow.counted_inside.items():
            for buffer in buffers & alive.keys():
                alive[buffer] &= ~(1 << node)
        return alive

    def _nodes_of(self, value: FlowValue) -> int:
        """The nodes that make and read a value, and those it has to wait for."""
        is_again = value.made_by >= 0 and self._again[value.made_by]
        readers = [node for node in value.readers if self._needs_operands(node, is_again)]
        nodes = sum(1 << node for node in readers) | self._waits_for(value, readers)
        if value.made_by >= 0:
            nodes |= 1 << value.made_by
        return nodes | 1 << self._root if value.lives_on else nodes

    def _waits_for(self, value: FlowValue, readers: Sequence[int]) -> int:
        """The nodes before and after which a value is there, if it is not recomputed."""
        maker = value.made_by
        if not self._above or (maker >= 0 and self._again[maker]):
            return 0
        needed = 0
        for node in readers:
            needed |= self._above[node]
        return needed & (self._below[maker] if maker >= 0 else -1)

    def _free(self, node: int) -> tuple[Sequence[int], int]:
        """Bytes of results whose memory is free then, and those its own may be written over."""
        flow = self._flow
        free: list[int] = []
        over = 0
        for lender, filled in zip(flow.lenders, self._filled, strict=True):
            is_made = any(one.made_by == node for one in lender.values)
            is_read = any(node in one.readers for one in lender.values)
            if (
                is_made or is_read
            ) and node not in flow.inner:  # else inside, where results will be
                met = {flow.values[value].buffer for meets in lender.meets for value in meets}
                if not (is_made and is_read):  # else it is full before and after
                    over += max((flow.sizes[buffer] for buffer in met), default=0)
            elif not filled >> node & 1:
                free.append(lender.size)
        return free, over

    @cached_property
    def _filled(self) -> list[int]:
        """By lender the nodes at whose first run something is in its memory."""
        found: list[int] = []
        for lender in self._flow.lenders:
            nodes = 0
            for value in lender.values:
                nodes |= self._waits_for(value, value.readers)
            found.append(-1 if self._is_taken_over(lender) else nodes)
        return found

    def _is_taken_over(self, lender: FlowLender) -> bool:
        """Whether a result is made right of the argument whose memory it takes over."""
        given = [value for value in lender.values if value.made_by < 0]
        made = {value.made_by for value in lender.values if value.made_by >= 0}
        readers = {node for value in given for node in value.readers} - self._flow.inner.keys()
        return bool(made) and made <= readers

    def _needs_operands(self, node: int, is_again: bool) -> bool:
        """Whether a node reads an operand whole; a loop may be given what makes it, instead."""
        is_loop = self._flow.nodes[node].opcode in RUN_IN_PLACE
        return self._works(node) and not (is_loop and is_again)

    def _reach(self) -> tuple[list[int], list[int]]:
        """By node, as bits, those that it needs and that need it; nothing for many nodes."""
        nodes = self._flow.nodes
        if len(nodes) > MAX_BOUND_NODES:
            return [], []
        node_of = self._node_of
        before = [[node_of[operand] for operand in node.operands] for node in nodes]
        after: list[list[int]] = [[] for _ in nodes]
        for node, operands in enumerate(before):
            for operand in operands:
                after[operand].append(node)
        count = len(nodes)
        return reachable(before, range(count)), reachable(after, range(count)[::-1])


def _find_inside(stages: Stages) -> set[HloBuffer]:
    """The buffers of values that those who read them can compute."""
    return {
        stages.aliasing.buffer_of[value]
        for one in find_inside(stages)
        for value in stages.dataflow.value_sets[one][0]
    }


def _borrowed(lent: Iterable[int], buffers: Iterable[int], passing: int) -> int:
    """The most bytes that may lie in the memory of results: a buffer in each, or others."""
    free = sorted(lent)
    most, borrowed = sum(free), 0
    for size in sorted(buffers, reverse=True):
        place = bisect_left(free, size)
        if place < len(free):
            del free[place]
            borrowed += size
    return min(most, borrowed + passing)


# Stacks.


def _find_stacks(stages: Stages) -> set[HloBuffer]:
    """The buffers that a loop writes by slices, and others read by slices, if at all."""
    buffer_of = stages.aliasing.buffer_of
    found = {
        buffer_of[value]
        for computation in stages.live_ranges.span_of
        for loop in computation.instructions
        if loop.opcode == "while"
        for index in range(len(loop.shape.elements))
        if _is_written_only(loop.called_computations[0].parameters[:1], index, _MAX_DEPTH)
        and all(_is_sliced(one, index, _MAX_DEPTH) for one in _with_calls(loop, stages))
        for part in [stages.dataflow.value_sets[loop][index + 1]]
        for value in part
    }
    for computation in stages.live_ranges.span_of:
        for one in computation.instructions:
            if one.opcode != "bitcast" and (relaid := relaid_from(one)) is not None:
                values = [stages.dataflow.value_sets[value][0] for value in (relaid[0], one)]
                of_stack, own = ({buffer_of[value] for value in part} for part in values)
                found |= own if of_stack <= found else set()
    return found


def _with_calls(loop: HloInstruction, stages: Stages) -> list[HloInstruction]:
    """A loop, and the calls of a computation that ends with it."""
    calls = stages.call_graph.callsites[loop.parent] if loop.is_root else []
    return [loop, *(call for call in calls if call.opcode == "call")]


def _is_written_only(wholes: Sequence[HloInstruction], index: int, depth: int) -> bool:
    """Whether an element of a state is written by slices, and read by nothing in the loop."""
    elements = [
        user
        for whole in wholes
        for user in whole.users
        if user.opcode == "get-tuple-element" and user.tuple_index == index
    ]
    return bool(elements) and depth > 0 and all(_only_writes(one, depth) for one in elements)


def _only_writes(value: HloInstruction, depth: int) -> bool:
    return any(user.opcode != "tuple" or not user.is_root for user in value.users) and all(
        _is_write(value, user, depth) for user in value.users
    )


def _is_write(value: HloInstruction, user: HloInstruction, depth: int) -> bool:
    """Whether an instruction does no more with a stack than write a slice to it, or hand it on."""
    numbers = [number for number, operand in enumerate(user.operands) if operand is value]
    if user.opcode == _WRITE:
        return numbers == [0] and _is_kept(user, depth)
    if user.opcode == "bitcast":
        return _only_writes(user, depth)
    if user.opcode == "tuple":
        loops = [one for one in user.users if one.opcode == "while"]
        bodies = [one.called_computations[0].parameters[0] for one in loops]
        return all(
            _is_written_only([body], number, depth - 1) for body in bodies for number in numbers
        )
    if user.opcode in ("fusion", "async-start", "call"):
        [callee] = user.called_computations
        is_written = depth > 0 and all(
            _only_writes(callee.parameters[number], depth - 1) for number in numbers
        )
        return is_written and (not user.shape.is_array or _is_kept(user, depth))
    return False


def _is_kept(written: HloInstruction, depth: int) -> bool:
    """Whether a stack that a slice was written to goes on, and is not read whole before that."""
    return all(
        user.is_root
        or (user.opcode in ("bitcast", "copy") and _is_kept(user, depth))
        or _is_write(written, user, depth)
        or _is_read(written, user, depth)
        for user in written.users
    )


def _is_sliced(whole: HloInstruction, index: int, depth: int) -> bool:
    """Whether all that read an element of a tuple read slices of it, in whichever loop."""
    if depth <= 0:
        return False
    elements: list[HloInstruction] = []
    for user in whole.users:
        if user.opcode in _RUNNING:
            inside = [callee.parameters[0] for callee in user.called_computations]
            if not all(_is_sliced(one, index, depth - 1) for one in (*inside, user)):
                return False
        elif user.opcode == "get-tuple-element" and user.tuple_index == index:
            elements.append(user)
    return all(_reads_slices(element, depth) for element in elements)


def _reads_slices(value: HloInstruction, depth: int) -> bool:
    return all(_is_read(value, user, depth) for user in value.users)


def _is_read(value: HloInstruction, user: HloInstruction, depth: int) -> bool:
    """Whether an instruction takes a slice of a stack, or hands it to a loop that does."""
    numbers = [number for number, operand in enumerate(user.operands) if operand is value]
    if user.opcode == _READ:
        return numbers == [0]
    if user.opcode in ("bitcast", "get-tuple-element") or relaid_from(user) is not None:
        return _reads_slices(user, depth)
    if user.opcode == "tuple" and user.is_root:  # a loop's next state; if another, read by it
        return value.opcode == "get-tuple-element" and numbers == [value.tuple_index]
    if user.opcode == "tuple":
        return all(_is_sliced(user, number, depth - 1) for number in numbers)
    if user.opcode in ("fusion", "async-start"):
        [callee] = user.called_computations
        return depth > 0 and all(
            _reads_slices(callee.parameters[number], depth - 1) for number in numbers
        )
    return False
