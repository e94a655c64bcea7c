"""Pairs of loops of which one stacks values that the other reads, as `jax.lax.scan` leaves them.

In: a module and its schedule. Out: `LoopPair`s. The first loop writes a slice of a stack in every
iteration (`dynamic-update-slice`), the second reads one slice in every iteration (`dynamic-slice`)
and nobody else touches it. What every iteration writes and reads is not guessed from how it looks:
both loops' counters are run through, and iteration is matched with iteration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.schedule import running_computations
from hlomem.remat.scalars import find_integers, integers_inside, is_integer, scalars_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule

MAX_TRIPS = 4096
"""Iterations of a loop that is run through."""
MIN_TRIPS = 2
_WRITE = "dynamic-update-slice"
_READ = "dynamic-slice"
_OPERANDS_BEFORE_PLACES = {_WRITE: 2, _READ: 1}


class Loop(NamedTuple):
    """A while whose counter is known, and whose state is a tuple that nobody else reads."""

    instruction: HloInstruction
    initial: HloInstruction
    """The tuple it begins with."""
    elements: Mapping[int, tuple[HloInstruction, ...]]
    """By index of the state: who reads that element in the body."""
    results: Mapping[int, tuple[HloInstruction, ...]]
    """By index of the state: who reads that element behind the loop."""
    ticks: Sequence[Mapping[HloInstruction, int]]
    """By iteration: the integers of the body."""

    @property
    def body(self) -> HloComputation:
        """The computation of an iteration."""
        return self.instruction.called_computations[0]

    @property
    def condition(self) -> HloComputation:
        """The computation that asks for another iteration."""
        return self.instruction.called_computations[1]

    def is_invariant(self, index: int) -> bool:
        """Whether an element goes around unchanged."""
        return self.body.root.operands[index] in self.elements.get(index, ())


class Read(NamedTuple):
    """An instruction of the second loop that reads slices of a stack."""

    instruction: HloInstruction
    number: int
    """The number of its operand that the stack is."""


class Stack(NamedTuple):
    """An element of both loops' states that the first writes and the second reads, by slices."""

    earlier_index: int
    """In the state of the first loop."""
    later_index: int
    """In the state of the second."""
    write: HloInstruction
    """The instruction of the first body that writes it: an update, or a fusion that ends in one."""
    number: int
    """The number of the write's operand that the stack is."""
    update: HloInstruction
    """The slice, in the body of the fusion or of the loop."""
    reads: tuple[Read, ...]
    places: tuple[int, ...]
    """By iteration of the first loop where its slice goes."""

    @property
    def is_fused(self) -> bool:
        """Whether the slice is computed in a fusion."""
        return self.update.parent is not self.write.parent

    @property
    def source(self) -> HloInstruction | None:
        """The instruction of the first body whose value the slice is, in another shape at most."""
        inside = self.update
        while inside.opcode == "bitcast":
            inside = inside.operands[0]
        if not self.is_fused:
            return inside
        if inside.opcode != "parameter":
            return None
        return self.write.operands[inside.parameter_number]


class LoopPair(NamedTuple):
    """Two loops of one computation."""

    first: Loop
    second: Loop
    stacks: tuple[Stack, ...]
    counterparts: tuple[int, ...]
    """By iteration of the second: the iteration of the first whose slices it reads."""


def find_pairs(module: HloModule) -> list[LoopPair]:
    """All pairs of loops with stacks between them, in the order of the program."""
    callers: dict[HloComputation, int] = {}
    computations = list(running_computations(module))
    for computation in computations:
        for instruction in computation.instructions:
            for callee in instruction.called_computations:
                callers[callee] = callers.get(callee, 0) + 1
    pairs: list[LoopPair] = []
    for computation in computations:
        loops = [
            loop
            for instruction in computation.instructions
            if instruction.opcode == "while"
            and all(callers[callee] == 1 for callee in instruction.called_computations)
            and (loop := _read_loop(instruction)) is not None
        ]
        for place, first in enumerate(loops):
            for second in loops[place + 1 :]:
                pair = _pair(first, second, callers)
                if pair is not None:
                    pairs.append(pair)
    return pairs


def _read_loop(instruction: HloInstruction) -> Loop | None:
    [initial] = instruction.operands
    body, condition = instruction.called_computations
    if initial.opcode != "tuple" or initial.users != [instruction] or body.root.opcode != "tuple":
        return None
    if instruction.is_root or instruction.control_predecessors:
        return None
    elements = _elements_of(body.parameters[0])
    results = _elements_of(instruction, may_be_root=True)
    asked = _elements_of(condition.parameters[0])
    if elements is None or results is None or asked is None or body.root.users:
        return None
    ticks = _run(instruction, elements, asked)
    return None if ticks is None else Loop(instruction, initial, elements, results, ticks)


def _elements_of(
    whole: HloInstruction, *, may_be_root: bool = False
) -> dict[int, tuple[HloInstruction, ...]] | None:
    """Those that take each element of a tuple; None where somebody takes the tuple whole."""
    found: dict[int, tuple[HloInstruction, ...]] = {}
    if whole.is_root:
        return None
    for user in whole.users:
        if user.opcode != "get-tuple-element" or (user.is_root and not may_be_root):
            return None
        index = user.tuple_index
        found[index] = (*found.get(index, ()), user)
    return found


def _run(
    loop: HloInstruction,
    elements: Mapping[int, tuple[HloInstruction, ...]],
    asked: Mapping[int, tuple[HloInstruction, ...]],
) -> list[dict[HloInstruction, int]] | None:
    """The integers of each iteration; None where their number is not known, or large."""
    body, condition = loop.called_computations
    parent = loop.parent.instructions
    outside = find_integers(filter(is_integer, parent[: loop.index]), {})
    initial = loop.operands[0].operands
    state = {index: outside[operand] for index, operand in enumerate(initial) if operand in outside}
    in_body, in_condition = scalars_of(body), scalars_of(condition)
    ticks: list[dict[HloInstruction, int]] = []
    while len(ticks) <= MAX_TRIPS:
        goes_on = find_integers(in_condition, _given(asked, state)).get(condition.root)
        if goes_on is None:
            return None
        if not goes_on:
            return ticks if len(ticks) >= MIN_TRIPS else None
        tick = find_integers(in_body, _given(elements, state))
        ticks.append(tick)
        state = {
            index: tick[operand]
            for index, operand in enumerate(body.root.operands)
            if operand in tick
        }
    return None


def _given(
    elements: Mapping[int, tuple[HloInstruction, ...]], state: Mapping[int, int]
) -> dict[HloInstruction, int]:
    return {
        element: state[index]
        for index, taken in elements.items()
        for element in taken
        if index in state
    }


def _pair(first: Loop, second: Loop, callers: Mapping[HloComputation, int]) -> LoopPair | None:
    """The stacks between two loops that are read in one and the same order."""
    by_order: dict[tuple[int, ...], list[Stack]] = {}
    for stack, order in _iter_stacks(first, second, callers):
        by_order.setdefault(order, []).append(stack)
    if not by_order:
        return None
    order = max(by_order, key=lambda order: len(by_order[order]))
    return LoopPair(first, second, tuple(by_order[order]), order)


def _iter_stacks(
    first: Loop, second: Loop, callers: Mapping[HloComputation, int]
) -> Iterator[tuple[Stack, tuple[int, ...]]]:
    given = second.initial.operands
    for index, results in first.results.items():
        if len(results) != 1 or results[0].is_root or results[0].users != [second.initial]:
            continue
        if given.count(results[0]) != 1:
            continue
        later = given.index(results[0])
        written = _find_write(first, index, callers)
        if written is None or later in second.results or not second.is_invariant(later):
            continue
        write, number, update, places = written
        reads = _find_reads(second, later, callers)
        if not reads:
            continue
        readers = tuple(read for read, _ in reads)
        stack = Stack(index, later, write, number, update, readers, tuple(places))
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


def _find_write(
    loop: Loop, index: int, callers: Mapping[HloComputation, int]
) -> tuple[HloInstruction, int, HloInstruction, list[int]] | None:
    """The write of a stack, which operand the stack is, the slice, and by iteration its place."""
    write = loop.body.root.operands[index]
    elements = loop.elements.get(index, ())
    if len(elements) != 1 or elements[0].users != [write] or write.users != [loop.body.root]:
        return None
    if loop.body.root.operands.count(write) != 1 or write.operands.count(elements[0]) != 1:
        return None
    number = write.operands.index(elements[0])
    inner = write
    if write.opcode == "fusion":
        [body] = write.called_computations
        if callers.get(body, 1) != 1 or write.attributes.get("kind") != "kLoop":
            return None
        inner = body.root
        if inner.opcode != _WRITE or inner.operands[0] is not body.parameters[number]:
            return None
        if body.parameters[number].users != [inner] or inner.operands.count(inner.operands[0]) > 1:
            return None
    elif write.opcode != _WRITE or number != 0:
        return None
    if write.control_predecessors or not _is_slice(inner.operands[1], inner):
        return None
    places = _places(inner, write, loop.ticks)
    return None if places is None else (write, number, inner.operands[1], places)


def _find_reads(
    loop: Loop, index: int, callers: Mapping[HloComputation, int]
) -> list[tuple[Read, list[int]]]:
    """All reads of a stack with their places by iteration; none where one is not of a slice."""
    [*elements] = loop.elements.get(index, ())
    found: list[tuple[Read, list[int]]] = []
    for element in elements:
        for user in element.users:
            if user is loop.body.root:
                if user.operands.count(element) != 1:
                    return []
                continue
            for number, operand in enumerate(user.operands):
                if operand is element:
                    slices = _slices_of(user, number, callers)
                    if not slices:
                        return []
                    for inner in slices:
                        places = _places(inner, user, loop.ticks)
                        if places is None or not _is_slice(inner, inner):
                            return []
                        found.append((Read(user, number), places))
    return found


def _slices_of(
    user: HloInstruction, number: int, callers: Mapping[HloComputation, int]
) -> list[HloInstruction]:
    """The slices that an instruction takes of an operand; none where it does anything else."""
    if user.opcode == _READ:
        return [user] if number == 0 else []
    if user.opcode != "fusion" or callers.get(user.called_computations[0], 1) != 1:
        return []
    parameter = user.called_computations[0].parameters[number]
    if parameter.is_root or any(
        reader.opcode != _READ
        or reader.operands.index(parameter)
        or reader.operands.count(parameter) > 1
        for reader in parameter.users
    ):
        return []
    return parameter.users


def _is_slice(part: HloInstruction, access: HloInstruction) -> bool:
    """Whether a part is one slice of a stack, whole in all dimensions but the first."""
    whole = access.operands[0].shape
    return (
        not any(whole.dynamic)
        and len(whole.dimensions) > 0
        and part.shape.dimensions == (1, *whole.dimensions[1:])
        and whole.layout is not None
        and whole.layout.minor_to_major[-1] == 0
    )


def _places(
    access: HloInstruction, outer: HloInstruction, ticks: Sequence[Mapping[HloInstruction, int]]
) -> list[int] | None:
    """By iteration the place of a slice in its stack; None where it is not known."""
    first, *others = access.operands[_OPERANDS_BEFORE_PLACES[access.opcode] :]
    places: list[int] = []
    for tick in ticks:
        known = tick if access is outer else integers_inside(outer, tick)
        place = known.get(first)
        if place is None or any(known.get(other) != 0 for other in others):
            return None
        places.append(min(max(place, 0), access.operands[0].shape.dimensions[0] - 1))
    return places
