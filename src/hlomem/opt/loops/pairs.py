"""Pairs of loops of which one stacks values that the other reads, as `jax.lax.scan` leaves them.

The iterations that write and read a slice are not guessed: both loops' counters are run through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.schedule import running_computations
from hlomem.opt.loops import stacks
from hlomem.opt.orders.trips import elements_of, run_through

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.shape import Shape
    from hlomem.opt.loops.stacks import Callers, Ticks


class Loop(NamedTuple):
    """A while with a known counter, and a tuple as state that nothing else reads."""

    instruction: HloInstruction
    """The while, or the call of a computation that is nothing else: XLA:CPU makes small ones so."""
    repeats: HloInstruction
    """The while itself."""
    initial: HloInstruction
    """The tuple it begins with."""
    elements: Mapping[int, tuple[HloInstruction, ...]]
    """By index of the state: who reads that element in the body."""
    results: Mapping[int, tuple[HloInstruction, ...]]
    """By index of the state: the readers of that element after the loop."""
    ticks: Ticks
    """By iteration: the integers of the body."""

    @property
    def body(self) -> HloComputation:
        """The computation of an iteration."""
        return self.repeats.called_computations[0]

    @property
    def condition(self) -> HloComputation:
        return self.repeats.called_computations[1]

    @property
    def is_called(self) -> bool:
        """Whether it is in a call of its own."""
        return self.repeats is not self.instruction

    def is_invariant(self, index: int) -> bool:
        """Whether an element goes around unchanged."""
        return self.body.root.operands[index] in self.elements.get(index, ())


class Stack(NamedTuple):
    """An element of both loops' states that the first writes and the second reads, by slices."""

    earlier_index: int
    """In the state of the first loop."""
    later_index: int
    """In the state of the second."""
    shape: Shape
    """Of the element."""
    write: stacks.Write
    reads: tuple[stacks.Read, ...]
    places: tuple[int, ...]
    """By iteration of the first loop where its slice goes."""

    @property
    def part(self) -> Shape:
        """The shape of the element if it had one slice."""
        return stacks.one_slice(self.shape)

    @property
    def value(self) -> HloInstruction:
        """The value that the slice is, in another shape at most: of the body, or in a fusion."""
        value = stacks.without_bitcasts(self.write.update)
        if value.opcode == "parameter" and stacks.fusion_of(self.write.runs) is not None:
            value = stacks.without_bitcasts(self.write.runs.operands[value.parameter_number])
        return value

    @property
    def is_exact(self) -> bool:
        """Whether the slice is of the value's type; a TPU also writes narrower ones."""
        return self.write.update.shape.element_type is self.shape.element_type


class LoopPair(NamedTuple):
    first: Loop
    second: Loop
    stacks: tuple[Stack, ...]
    counterparts: tuple[int, ...]
    """By iteration of the second: the iteration of the first whose slices it reads."""


def find_pairs(module: HloModule) -> list[LoopPair]:
    """All pairs of loops with stacks between them, in the order of the program."""
    callers = count_callers(module)
    pairs: list[LoopPair] = []
    for computation in running_computations(module):
        loops = find_loops(computation, callers)
        for place, first in enumerate(loops):
            for second in loops[place + 1 :]:
                # XLA:CPU emits what it puts into calls by other code, which knows fewer fusions.
                if second.is_called and not first.is_called:
                    continue
                pair = _pair(first, second, callers)
                if pair is not None:
                    pairs.append(pair)
    return pairs


def count_callers(module: HloModule) -> Callers:
    callers: dict[HloComputation, int] = {}
    for computation in running_computations(module):
        for instruction in computation.instructions:
            for callee in instruction.called_computations:
                callers[callee] = callers.get(callee, 0) + 1
    return callers


def find_loops(computation: HloComputation, callers: Callers) -> list[Loop]:
    """The loops of a computation whose bodies nothing else runs."""
    return [
        loop
        for instruction in computation.instructions
        if (repeats := _while_of(instruction)) is not None
        and all(
            callers[callee] == 1
            for caller in (instruction, repeats)
            for callee in caller.called_computations
        )
        and (loop := _read_loop(instruction, repeats)) is not None
    ]


def _while_of(instruction: HloInstruction) -> HloInstruction | None:
    """The loop that an instruction is, or that all of what it calls is."""
    if instruction.opcode == "while":
        return instruction
    if instruction.opcode != "call" or len(instruction.operands) != 1:
        return None
    [callee] = instruction.called_computations
    is_all = (
        callee.root.opcode == "while" and len(callee.instructions) == len(callee.root.operands) + 1
    )
    return callee.root if is_all else None


def _read_loop(instruction: HloInstruction, repeats: HloInstruction) -> Loop | None:
    [initial] = instruction.operands
    body, condition = repeats.called_computations
    if initial.opcode != "tuple" or initial.users != [instruction] or body.root.opcode != "tuple":
        return None
    if instruction.is_root or instruction.control_predecessors or repeats.control_predecessors:
        return None
    elements = elements_of(body.parameters[0])
    results = elements_of(instruction, may_be_root=True)
    asked = elements_of(condition.parameters[0])
    if elements is None or results is None or asked is None or body.root.users:
        return None
    ticks = run_through(instruction, repeats, elements, asked)
    return None if ticks is None else Loop(instruction, repeats, initial, elements, results, ticks)


def _pair(first: Loop, second: Loop, callers: Callers) -> LoopPair | None:
    """The stacks between two loops that are read in one and the same order."""
    by_order: dict[tuple[int, ...], list[Stack]] = {}
    for stack, order in _iter_stacks(first, second, callers):
        by_order.setdefault(order, []).append(stack)
    if not by_order:
        return None
    order = max(by_order, key=lambda order: len(by_order[order]))
    return LoopPair(first, second, tuple(by_order[order]), order)


def _iter_stacks(
    first: Loop, second: Loop, callers: Callers
) -> Iterator[tuple[Stack, tuple[int, ...]]]:
    given = second.initial.operands
    for index, results in first.results.items():
        if len(results) != 1 or results[0].is_root or results[0].users != [second.initial]:
            continue
        if given.count(results[0]) != 1:
            continue
        later = given.index(results[0])
        if later in second.results or not second.is_invariant(later):
            continue
        found = _find_write(first, index, callers)
        reads = find_reads(second, later, callers) if found is not None else []
        if found is None or not reads:
            continue
        write, places = found
        readers = tuple(dict.fromkeys(read for read, _ in reads))
        stack = Stack(index, later, results[0].shape, write, readers, tuple(places))
        orders = {_match(places, read_places) for _, read_places in reads}
        order = orders.pop()
        if order is not None and not orders:
            yield stack, order


def _match(written: Sequence[int], read: Sequence[int]) -> tuple[int, ...] | None:
    """By reading iteration the one that wrote; None where one reads what none or two wrote."""
    writer_of = {place: tick for tick, place in enumerate(written)}
    if len(writer_of) != len(written) or not set(read) <= set(writer_of):
        return None
    return tuple(writer_of[place] for place in read)


def _find_write(loop: Loop, index: int, callers: Callers) -> tuple[stacks.Write, list[int]] | None:
    """The write of a stack, and by iteration its index."""
    elements = loop.elements.get(index, ())
    if len(elements) != 1:
        return None
    write = stacks.find_write(elements[0], loop.body.root, index, callers)
    if write is None or not stacks.have_same_slices(elements[0].shape, write.access.shape):
        return None
    places = stacks.places_of_write(write, loop.ticks)
    return None if places is None else (write, places)


def find_reads(loop: Loop, index: int, callers: Callers) -> list[tuple[stacks.Read, list[int]]]:
    """All reads of a stack with their indices by iteration; none where one is not of a slice."""
    found: list[tuple[stacks.Read, list[int]]] = []
    for element in loop.elements.get(index, ()):
        for user in element.users:
            if user is loop.body.root:
                if user.operands.count(element) != 1:
                    return []
                continue
            for number, operand in enumerate(user.operands):
                if operand is element:
                    read = stacks.Read(user, number)
                    slices = stacks.places_of_read(read, loop.ticks, callers)
                    if slices is None:
                        return []
                    found += [(read, places) for places in slices]
    return found
