"""The choice of what a pair of loops stacks: as few bytes as a price for computing again allows.

In: a `LoopPair`, and what a byte is worth. Out: a `LoopPlan`. Every value of the first body that
the second needs is either stacked, for its bytes in every iteration, or computed again in the
second body, for its operations and the bytes it touches, from others of which the same is true.
That is a least cut between what is there in any case (invariants, constants, the counter) and the
slices that are read: so the choice is the best there is for a price, not a guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.remat.min_cut import UNCUT, Network
from hlomem.remat.state import is_repeatable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.remat.flops import Costs
    from hlomem.remat.loops import LoopPair, Stack
    from hlomem.schedule.effects import Effects

MAX_NODES = 4000
"""Instructions of a body that is looked at."""


class LoopPlan(NamedTuple):
    """The stacks of a pair of loops as they shall be."""

    pair: LoopPair
    dropped: tuple[Stack, ...]
    """Not stacked any more."""
    stored: tuple[HloInstruction, ...]
    """Values of the first body that are stacked, by a stack that is there or a new one."""
    remade: tuple[HloInstruction, ...]
    """Values of the first body computed again in the second."""
    freed: int
    """Bytes of stacks that are freed; new ones are taken off."""


def plan_loops(
    pair: LoopPair, costs: Costs, size_of: Callable[[Shape], int], effects: Effects, price: int
) -> LoopPlan | None:
    """The plan of a pair for a price; None where it frees nothing."""
    chooser = _Chooser(pair, costs, size_of, effects)
    if len(chooser.nodes) > MAX_NODES:
        return None
    plan = chooser.choose(price)
    return plan if plan.dropped and plan.freed > 0 else None


class _Chooser:
    def __init__(
        self, pair: LoopPair, costs: Costs, size_of: Callable[[Shape], int], effects: Effects
    ) -> None:
        self._pair = pair
        self._costs = costs
        self._size_of = size_of
        self._effects = effects
        self._trips = len(pair.first.ticks)
        self._known = frozenset.intersection(*(frozenset(tick) for tick in pair.first.ticks))
        self._free = frozenset(self._find_free())
        self.nodes = [
            instruction
            for instruction in pair.first.body.instructions
            if instruction not in self._free
            and instruction.opcode != "parameter"
            and instruction is not pair.first.body.root
        ]
        self._node_of = {instruction: node for node, instruction in enumerate(self.nodes)}

    def _find_free(self) -> Iterator[HloInstruction]:
        """Values that the second body has in any case, or can make of nothing."""
        first = self._pair.first
        for index, elements in first.elements.items():
            if first.is_invariant(index):
                yield from elements
        for instruction in first.body.instructions:
            if instruction.opcode == "constant" or instruction in self._known:
                yield instruction

    def choose(self, price: int) -> LoopPlan:
        """The plan for a price."""
        stacks, count = self._pair.stacks, len(self.nodes)
        source, sink = 2 * (count + len(stacks)), 2 * (count + len(stacks)) + 1
        network = Network(sink + 1)
        for node, instruction in enumerate(self.nodes):
            size = UNCUT if instruction.shape.is_tuple else self._bytes(instruction.shape)
            cost = self._cost([instruction], price) if self._may_repeat(instruction) else UNCUT
            self._add(network, node, size, cost, source, instruction.operands)
        for number, stack in enumerate(stacks):
            node = count + number
            size = self._bytes(stack.update.shape)
            self._add(network, node, size, self._slice_cost(stack, price), source, inputs(stack))
            network.connect(2 * node + 1, sink, UNCUT)
        near = network.source_side(source, sink)
        return self._plan(near, count)

    def _add(
        self,
        network: Network,
        node: int,
        size: int,
        cost: int,
        source: int,
        operands: Iterable[HloInstruction],
    ) -> None:
        """A node is cut in two where it is stacked, and from the source where it is made again."""
        network.connect(2 * node, 2 * node + 1, size)
        network.connect(source, 2 * node, cost)
        for operand in operands:
            if operand in self._node_of:
                network.connect(2 * self._node_of[operand] + 1, 2 * node, UNCUT)

    def _plan(self, near: set[int], count: int) -> LoopPlan:
        stored: set[HloInstruction] = set()
        remade: set[HloInstruction] = set()
        again = [
            stack
            for number, stack in enumerate(self._pair.stacks)
            if 2 * (count + number) not in near
        ]
        pending = [operand for stack in again for operand in inputs(stack)]
        while pending:
            needed = pending.pop()
            node = self._node_of.get(needed)
            if node is None or needed in stored or needed in remade:
                continue
            if 2 * node in near:
                stored.add(needed)
            else:
                remade.add(needed)
                pending += needed.operands
        return self._finish(again, self._sorted(stored), self._sorted(remade))

    def _finish(
        self,
        again: Sequence[Stack],
        stored: tuple[HloInstruction, ...],
        remade: tuple[HloInstruction, ...],
    ) -> LoopPlan:
        """Keep a stack that holds a stored value already; count what changes."""
        kept: dict[HloInstruction, Stack] = {}
        for stack in self._pair.stacks:
            if stack.source in stored and stack.source not in kept:
                kept[stack.source] = stack
        dropped = tuple(stack for stack in again if stack not in kept.values())
        freed = sum(self._bytes(stack.update.shape) for stack in dropped)
        freed -= sum(self._bytes(one.shape) for one in stored if one not in kept)
        return LoopPlan(self._pair, dropped, stored, remade, freed * self._trips)

    def _sorted(self, chosen: set[HloInstruction]) -> tuple[HloInstruction, ...]:
        return tuple(sorted(chosen, key=lambda instruction: instruction.index))

    def _may_repeat(self, instruction: HloInstruction) -> bool:
        if instruction.opcode == "get-tuple-element":  # of the state, and changed by iterations
            return instruction.operands[0].opcode != "parameter"
        return not instruction.control_predecessors and is_repeatable(instruction, self._effects)

    def _cost(self, instructions: Sequence[HloInstruction], price: int) -> int:
        if not price:
            return 1
        touched = sum(map(self._costs.bytes_touched, instructions))
        return (self._costs.total(instructions) + touched) // price + 1

    def _slice_cost(self, stack: Stack, price: int) -> int:
        if not price or stack.source is not None:
            return 1
        touched = self._bytes(stack.update.shape)
        touched += sum(self._bytes(operand.shape) for operand in inputs(stack))
        return (self._slice_flops(stack) + touched) // price + 1

    def _slice_flops(self, stack: Stack) -> int:
        if not stack.is_fused or stack.source is not None:
            return 0
        return self._costs.total(
            inside
            for inside in stack.update.parent.instructions
            if inside.opcode != "dynamic-update-slice"
        )

    def _bytes(self, shape: Shape) -> int:
        return sum(self._size_of(leaf) for _, leaf in shape.leaves())


def inputs(stack: Stack) -> list[HloInstruction]:
    """The values of the first body that the slice of a stack is made of."""
    if not stack.is_fused:
        return [stack.update]
    body = stack.update.parent
    needed = {stack.update}
    for inside in reversed(body.instructions):
        if inside in needed:
            needed.update(inside.operands)
    return [
        operand
        for parameter, operand in zip(body.parameters, stack.write.operands, strict=True)
        if parameter in needed
    ]
