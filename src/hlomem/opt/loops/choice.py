"""The choice of what a pair of loops stacks: as few bytes as a price for recomputing allows.

Every value of the first body that the second needs is stacked, for its bytes, or recomputed, for
its operations and bytes touched. That is a least cut between what is there in any case (invariants,
constants, the counter) and the slices that are read: the best choice for a price.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.opt.constants import MAX_LOOP_NODES
from hlomem.opt.goal import ALL_SCOPES, Scopes
from hlomem.opt.loops.stacks import fusion_of, holds_slices, is_transparent, stacked
from hlomem.opt.remat.min_cut import UNCUT, Network
from hlomem.opt.remat.state import FORWARDS, is_repeatable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.opt.loops.pairs import LoopPair, Stack
    from hlomem.opt.orders.cost import Costs
    from hlomem.opt.orders.effects import Effects

_NOT_VALUES = ("parameter", "async-start")
_NOT_INSIDE = ("parameter", "tuple", "dynamic-update-slice")


class BodyValues:
    def __init__(self, pair: LoopPair) -> None:
        self._body = pair.first.body
        writing = {stack.write.runs for stack in pair.stacks}
        self._owner_of: dict[HloComputation, HloInstruction] = {}
        """By body that is looked into: the instruction of the loop's body that runs it."""
        for instruction in self._body.instructions:
            fusion = fusion_of(instruction)
            if fusion is None or not is_transparent(fusion) or not _has_parts(fusion):
                continue
            if instruction in writing or fusion.shape.is_tuple:
                self._owner_of[fusion.called_computations[0]] = instruction
        self._opened = frozenset(self._owner_of.values())

    def owner(self, value: HloInstruction) -> HloInstruction | None:
        """The instruction of the body that computes a value inside; None for one of the body."""
        return self._owner_of.get(value.parent)

    def __iter__(self) -> Iterator[HloInstruction]:
        """All values, operands before users."""
        for instruction in self._body.instructions:
            if instruction in self._opened:
                fusion = fusion_of(instruction)
                assert fusion is not None
                for inside in fusion.called_computations[0].instructions:
                    if inside.opcode not in _NOT_INSIDE:
                        yield inside
            elif instruction.opcode not in _NOT_VALUES and instruction is not self._body.root:
                yield instruction

    def place(self, value: HloInstruction) -> tuple[int, int]:
        owner = self.owner(value)
        return (value.index, -1) if owner is None else (owner.index, value.index)

    def operands(self, value: HloInstruction) -> list[HloInstruction]:
        owner = self.owner(value)
        if owner is not None:
            return [self.resolve(owner, operand) for operand in value.operands]
        if value.opcode == "get-tuple-element" and value.operands[0] in self._opened:
            return [self.result(value)]
        if value.opcode == "async-done":
            [start] = value.operands
            return [self.result(value)] if start in self._opened else list(start.operands)
        return list(value.operands)

    def result(self, taken: HloInstruction) -> HloInstruction:
        """The value in a fusion that is looked into which an instruction takes of its results."""
        [owner] = taken.operands
        fusion = fusion_of(owner)
        assert fusion is not None
        root = fusion.called_computations[0].root
        if taken.opcode == "get-tuple-element":
            root = root.operands[taken.tuple_index]
        return self.resolve(owner, root)

    def is_result(self, value: HloInstruction) -> bool:
        """Whether a value of the body is a result of a fusion that is looked into."""
        return bool(value.operands) and value.operands[0] in self._opened

    @staticmethod
    def resolve(owner: HloInstruction, inside: HloInstruction) -> HloInstruction:
        """A value inside, or the one of the body that is handed in for it."""
        if inside.opcode != "parameter":
            return inside
        return owner.operands[inside.parameter_number]


def _has_parts(fusion: HloInstruction) -> bool:
    """Whether each result of a fusion is a value inside; a reduction may make several at once."""
    if not fusion.shape.is_tuple:
        return True
    return fusion.called_computations[0].root.opcode == "tuple"


def repeated_by(value: HloInstruction) -> HloInstruction | None:
    """The instruction that is cloned to compute a value again; None where there is none."""
    return fusion_of(value.operands[0]) if value.opcode == "async-done" else value


class LoopPlan(NamedTuple):
    pair: LoopPair
    dropped: tuple[Stack, ...]
    stored: tuple[HloInstruction, ...]
    """Values of the first body that are stacked, by a stack that is there or a new one."""
    remade: tuple[HloInstruction, ...]
    """Values of the first body recomputed in the second."""
    freed: int
    """Bytes of stacks that are freed; new ones are taken off."""


def plan_loops(
    pair: LoopPair,
    costs: Costs,
    size_of: Callable[[Shape], int],
    effects: Effects,
    price: int,
    scopes: Scopes = ALL_SCOPES,
) -> LoopPlan | None:
    """The plan of a pair for a price; None where it frees nothing."""
    chooser = _Chooser(pair, costs, size_of, effects, scopes)
    if len(chooser.nodes) > MAX_LOOP_NODES:
        return None
    plan = chooser.choose(price)
    return plan if plan.dropped and plan.freed > 0 else None


class _Chooser:
    def __init__(
        self,
        pair: LoopPair,
        costs: Costs,
        size_of: Callable[[Shape], int],
        effects: Effects,
        scopes: Scopes,
    ) -> None:
        self._scopes = scopes
        self._pair = pair
        self._costs = costs
        self._size_of = size_of
        self._effects = effects
        self._trips = len(pair.first.ticks)
        self._known = frozenset.intersection(*(frozenset(tick) for tick in pair.first.ticks))
        free = frozenset(self._find_free())
        self._values = BodyValues(pair)
        self.nodes = [value for value in self._values if value not in free]
        self._node_of = {value: node for node, value in enumerate(self.nodes)}
        self._held = _by_value(pair.stacks)

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
        stacks, count = self._pair.stacks, len(self.nodes)
        source, sink = 2 * (count + len(stacks)), 2 * (count + len(stacks)) + 1
        network = Network(sink + 1)

        def add(node: int, size: int, cost: int, operands: Iterable[HloInstruction]) -> None:
            """A node is cut in two where it is stacked, from the source where it is remade."""
            network.connect(2 * node, 2 * node + 1, size)
            network.connect(source, 2 * node, cost)
            for operand in operands:
                if operand in self._node_of:
                    network.connect(2 * self._node_of[operand] + 1, 2 * node, UNCUT)

        for node, value in enumerate(self.nodes):
            cost = self._cost(value, price) if self._may_repeat(value) else UNCUT
            add(node, self._room(value), cost, self._values.operands(value))
        for node, stack in enumerate(stacks, count):
            size = self._bytes(stack.part)
            cost = size // price + 1 if price and self._is_inside(stack.value) else 1
            add(node, size, cost, [stack.value])
            network.connect(2 * node + 1, sink, UNCUT)
        return self._plan(network.source_side(source, sink), count)

    def _plan(self, near: set[int], count: int) -> LoopPlan:
        stored: set[HloInstruction] = set()
        remade: set[HloInstruction] = set()
        stacks = enumerate(self._pair.stacks, count)
        again = [stack for node, stack in stacks if 2 * node not in near]
        pending = [stack.value for stack in again]
        while pending:
            needed = pending.pop()
            node = self._node_of.get(needed)
            if node is None or needed in stored or needed in remade:
                continue
            if 2 * node in near:
                stored.add(needed)
            else:
                remade.add(needed)
                pending += self._values.operands(needed)
        return self._finish(again, self._sorted(stored), self._sorted(remade))

    def _finish(
        self,
        again: Sequence[Stack],
        stored: tuple[HloInstruction, ...],
        remade: tuple[HloInstruction, ...],
    ) -> LoopPlan:
        """Keep a stack that holds a stored value already; count what changes."""
        kept = {value: self._held[value] for value in stored if value in self._held}
        dropped = tuple(stack for stack in again if stack not in kept.values())
        freed = sum(self._bytes(stack.part) for stack in dropped)
        freed -= sum(self._bytes(one.shape) for one in stored if one not in kept)
        return LoopPlan(self._pair, dropped, stored, remade, freed * self._trips)

    def _sorted(self, chosen: set[HloInstruction]) -> tuple[HloInstruction, ...]:
        return tuple(sorted(chosen, key=self._values.place))

    def _is_inside(self, value: HloInstruction) -> bool:
        return self._values.owner(value) is not None

    def _may_repeat(self, value: HloInstruction) -> bool:
        if value.opcode == "get-tuple-element":  # of the state, and changed by iterations
            return value.operands[0].opcode != "parameter"
        if value.opcode == "constant":
            return True
        made_by = repeated_by(value)
        if made_by is None or not is_repeatable(made_by, self._effects):
            return False
        return made_by.opcode in FORWARDS or self._scopes.has(made_by)

    def _room(self, value: HloInstruction) -> int:
        """The bytes of a slice that holds a value; one in a fusion is held by a stack or not."""
        if value in self._held:
            return self._bytes(self._held[value].part)
        if self._is_inside(value) or not value.shape.is_array:
            return UNCUT
        return self._bytes(value.shape) if holds_slices(stacked(value.shape, 1)) else UNCUT

    def _cost(self, value: HloInstruction, price: int) -> int:
        made_by = repeated_by(value)
        if not price or made_by is None or self._values.is_result(value):
            return 1
        weigh = self._costs.flops if self._is_inside(value) else self._costs.weight
        return weigh(made_by) // price + 1

    def _bytes(self, shape: Shape) -> int:
        return sum(self._size_of(leaf) for _, leaf in shape.leaves())


def kept_stacks(plan: LoopPlan) -> dict[HloInstruction, Stack]:
    """By stored value the stack that holds it and stays."""
    held = _by_value(plan.pair.stacks)
    return {value: held[value] for value in plan.stored if value in held}


def _by_value(stacks: Sequence[Stack]) -> dict[HloInstruction, Stack]:
    """By value the first stack that holds it as it is."""
    held: dict[HloInstruction, Stack] = {}
    for stack in stacks:
        if stack.is_exact:
            held.setdefault(stack.value, stack)
    return held
