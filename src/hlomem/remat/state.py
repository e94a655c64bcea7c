"""The entry of a program with some of its instructions computed again, counted without packing.

In: the stages of a plan. Out: a `State`, to which a `Step` is applied: clones right before a node,
and readers that read them. Nodes, values and buffers are numbers, as in `hlomem.schedule.flow`; a
state is never changed, so that steps can be tried. What a new reader must not read is worked out
here once: nobody may read a value after the next value of its buffer has been written.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from hlomem.hlo.opcodes import COLLECTIVES, KNOWN_OPCODES, RUN_IN_PLACE, TRAITS
from hlomem.remat.edit import SUFFIX, Clone, Edit
from hlomem.schedule.effects import Effects, takes_time
from hlomem.schedule.flow import Flow, FlowBuilder, FlowValue
from hlomem.schedule.model import levels_of
from hlomem.schedule.places import AT_START

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.pipeline import Stages

FORWARDS = frozenset({"bitcast", "get-tuple-element"})
"""Opcodes that hand on a value of their operand, and cost nothing to do again."""
_NEVER = frozenset(
    {
        "constant",
        "copy-done",
        "copy-start",
        "custom-call",
        "domain",
        "opt-barrier",
        "parameter",
        "partition-id",
        "replica-id",
        "rng-bit-generator",
        "tuple",
        "while",
    }
)
"""Opcodes not computed again, though without effects: no values of their own, states of random
numbers, functions that nobody here knows."""


class Facts(NamedTuple):
    """All about the original nodes that no step changes."""

    may_repeat: Sequence[bool]
    """For each node, that it may be computed again."""
    limits: Sequence[tuple[int, ...]]
    """By node: those that write over what it holds; nobody may read it behind them."""


class Step(NamedTuple):
    """One value dropped and computed again."""

    dropped: int
    """The value that its later readers take from a clone."""
    before: int
    """The node right before which the clones go."""
    clones: tuple[tuple[int, tuple[int, ...]], ...]
    """Each a node and its operands; a negative number -1-i is the i-th clone of this step."""
    moved: Mapping[int, tuple[int, ...]]
    """Nodes that run here instead of where they did, behind the clones, with their operands."""
    readers: Mapping[int, tuple[int, ...]]
    """All that touch the value behind the clones, with the operands they have from now on."""

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal steps."""
        return self.dropped, self.before, self.clones, tuple(self.moved.items())


class State(Struct, frozen=True, eq=False):
    """A program, and what was computed again so far."""

    facts: Facts
    flow: Flow
    order: list[int]
    origin: list[int]
    """By node the original that it is, or is a clone of."""
    operands: list[tuple[int, ...]]
    holds: list[tuple[int, ...]]
    """By node the temporaries in its result, part by part."""

    @property
    def count(self) -> int:
        """The original nodes."""
        return len(self.facts.limits)

    def levels(self) -> list[int]:
        """Bytes alive while each node of the order runs."""
        return levels_of(self.flow, self.order)

    def instruction(self, node: int) -> HloInstruction:
        """The original instruction that a node is, or is a clone of."""
        return self.flow.nodes[self.origin[node]]

    def clones(self) -> list[HloInstruction]:
        """The originals of what is computed again, each as often as it is."""
        return [self.instruction(node) for node in range(self.count, len(self.origin))]

    def apply(self, step: Step) -> State:
        """The program with one more value computed again."""
        return _Application(self, step).run()

    def edit(self, orders: Mapping[HloComputation, Sequence[HloInstruction]]) -> Edit:
        """All steps so far as one edit; `orders` are those of other computations."""
        names = [instruction.name for instruction in self.flow.nodes]
        taken = set(names)
        for node in range(self.count, len(self.origin)):
            number, name = 1, f"{names[self.origin[node]]}.{SUFFIX}"
            while name in taken:
                number += 1
                name = f"{names[self.origin[node]]}.{SUFFIX}{number}"
            taken.add(name)
            names.append(name)

        def named(nodes: Sequence[int]) -> tuple[str, ...]:
            return tuple([names[node] for node in nodes])

        clones = {
            node: Clone(names[node], names[self.origin[node]], named(self.operands[node]))
            for node in range(self.count, len(self.origin))
        }
        others = {
            computation.name: tuple(instruction.name for instruction in order)
            for computation, order in orders.items()
        }
        changed = {
            names[node]: named(self.operands[node])
            for node in range(self.count)
            if named(self.operands[node])
            != tuple([operand.name for operand in self.flow.nodes[node].operands])
        }
        return Edit(
            self.flow.computation.name,
            tuple(clones[node] for node in self.order if node in clones),
            changed,
            {**others, self.flow.computation.name: named(self.order)},
        )


class _Application:
    """One step on its way into a state."""

    def __init__(self, state: State, step: Step) -> None:
        flow = state.flow
        self._state, self._step = state, step
        self._values = list(flow.values)
        self._sizes = list(flow.sizes)
        self._made_by = list(flow.made_by)
        self._read_by = list(flow.read_by)
        self._shares = dict(flow.shares)
        self._origin = list(state.origin)
        self._operands = list(state.operands)
        self._holds = list(state.holds)

    def run(self) -> State:
        state, step = self._state, self._step
        first = len(self._origin)

        def resolved(operands: tuple[int, ...]) -> tuple[int, ...]:
            return tuple([first - 1 - node if node < 0 else node for node in operands])

        for node, operands in step.clones:
            self._clone(node, resolved(operands))
        for node, operands in step.moved.items():
            self._rewire(node, resolved(operands), self._renamed(node, resolved(operands)))
        if step.readers:
            dropped = self._values[step.dropped].made_by
            place_in = self._made_by[dropped].index(step.dropped)
            remade = first + [node for node, _ in step.clones].index(dropped)
            renamed = {step.dropped: self._made_by[remade][place_in]}
            for node, operands in step.readers.items():
                self._rewire(node, resolved(operands), renamed)
        order = [node for node in state.order if node not in step.moved]
        place = order.index(step.before)
        order[place:place] = [*range(first, len(self._origin)), *step.moved]
        flow = replace(
            state.flow,
            values=self._values,
            sizes=self._sizes,
            made_by=self._made_by,
            read_by=self._read_by,
            shares=self._shares,
        )
        return replace(
            state,
            flow=flow,
            order=order,
            origin=self._origin,
            operands=self._operands,
            holds=self._holds,
        )

    def _clone(self, node: int, operands: tuple[int, ...]) -> None:
        number = len(self._origin)
        renamed = self._renamed(node, operands)
        made: list[int] = []
        for value in self._made_by[node]:
            renamed[value] = len(self._values)
            made.append(len(self._values))
            size = self._sizes[self._values[value].buffer]
            self._values.append(FlowValue(len(self._sizes), number, (), False))
            self._sizes.append(size)
        self._origin.append(self._origin[node])
        self._operands.append(operands)
        self._holds.append(tuple([renamed.get(value, value) for value in self._holds[node]]))
        self._made_by.append(made)
        read = [renamed.get(value, value) for value in self._read_by[node]]
        self._read_by.append(read)
        for value in read:
            self._touch(value, number)
        self._share(node, number, renamed)

    def _rewire(self, node: int, operands: tuple[int, ...], renamed: Mapping[int, int]) -> None:
        """Let a node read other operands; those it has in common with others hold other values."""
        old = self._read_by[node]
        new = list(dict.fromkeys([renamed.get(value, value) for value in old]))
        self._operands[node] = operands
        self._read_by[node] = new
        for value in set(old) - set(new):
            known = self._values[value]
            readers = tuple([reader for reader in known.readers if reader != node])
            self._values[value] = known._replace(readers=readers)
        for value in set(new) - set(old):
            self._touch(value, node)
        self._share(node, node, renamed)
        if self._state.instruction(node).opcode in FORWARDS:
            self._holds[node] = tuple([renamed.get(value, value) for value in self._holds[node]])

    def _touch(self, value: int, node: int) -> None:
        known = self._values[value]
        if node not in known.readers:
            self._values[value] = known._replace(readers=(*known.readers, node))

    def _renamed(self, node: int, operands: tuple[int, ...]) -> dict[int, int]:
        """The values of the old operands, and those of the new ones in their place."""
        return {
            old: new
            for before, after in zip(self._operands[node], operands, strict=True)
            if before != after
            for old, new in zip(self._holds[before], self._holds[after], strict=True)
        }

    def _share(self, node: int, target: int, renamed: Mapping[int, int]) -> None:
        if node in self._shares:
            self._shares[target] = [
                (
                    renamed.get(value, value),
                    tuple([renamed.get(candidate, candidate) for candidate in candidates]),
                )
                for value, candidates in self._shares[node]
            ]


def start_state(
    stages: Stages,
    peaks: Mapping[HloComputation, int] | None = None,
    computation: HloComputation | None = None,
) -> State:
    """The entry of a program as it was planned, or what it runs; `peaks` are those of callees."""
    builder = FlowBuilder(stages)
    if peaks is None:
        peaks = _inner_peaks(builder)
    flow = builder.build(computation or stages.module.entry, peaks)
    flow = replace(flow, sizes=_placed_sizes(stages, flow), before=(), after=())
    number_of = {value: number for number, value in enumerate(flow.origins)}
    node_of = {instruction: node for node, instruction in enumerate(flow.nodes)}
    holds = [
        tuple(
            number_of[value]
            for part in stages.dataflow.value_sets[instruction]
            for value in part
            if value in number_of
        )
        for instruction in flow.nodes
    ]
    facts = Facts(_find_repeatable(stages, flow), _find_limits(stages, builder, flow))
    operands = [
        tuple([node_of[operand] for operand in instruction.operands]) for instruction in flow.nodes
    ]
    count = len(flow.nodes)
    return State(facts, flow, list(range(count)), list(range(count)), operands, holds)


def floor_of(stages: Stages) -> int:
    """Bytes of temporaries that the hungriest instruction of the entry reads and makes.

    What it may write over its operands counts once; loops and calls, whose state may change, do not
    count.
    """
    flow = start_state(stages).flow
    most = 0
    for node in range(len(flow.nodes)):
        instruction = flow.nodes[node]
        if instruction.opcode in RUN_IN_PLACE or not takes_time(instruction):
            continue
        made = {flow.values[value].buffer for value in flow.made_by[node]}
        read = {flow.values[value].buffer for value in flow.read_by[node]}
        shared = {flow.values[value].buffer for value, _ in flow.shares.get(node, ())}
        most = max(most, sum(flow.sizes[buffer] for buffer in (made | read) - shared))
    return most


def _inner_peaks(builder: FlowBuilder) -> dict[HloComputation, int]:
    """Bytes that what the entry runs needs at once, each computation in its own order."""
    peaks: dict[HloComputation, int] = {}
    for computation in builder.computations():
        flow = builder.build(computation, peaks)
        peaks[computation] = max(levels_of(flow, range(len(flow.nodes))), default=0)
    return peaks


def _placed_sizes(stages: Stages, flow: Flow) -> list[int]:
    """Bytes of the buffers that lie among the temporaries; what lies elsewhere takes none."""
    placed = {
        value
        for allocation in stages.assignment.allocations
        if allocation.is_preallocated_temp
        for value in allocation.slices
    }
    return [
        size if any(value in placed for value in buffer.values) else 0
        for size, buffer in zip(flow.sizes, flow.buffers, strict=True)
    ]


def _find_repeatable(stages: Stages, flow: Flow) -> list[bool]:
    """For each node, that it may run again: equal operands give equal values, in new memory."""
    effects = Effects(stages.call_graph)
    awaited = {earlier for node in flow.nodes for earlier in node.control_predecessors}
    return [
        is_repeatable(instruction, effects)
        and instruction not in awaited
        and not instruction.control_predecessors
        and _is_alone(stages, instruction)
        for instruction in flow.nodes
    ]


def is_repeatable(instruction: HloInstruction, effects: Effects) -> bool:
    """Whether an instruction gives the same for the same operands, and does nothing else."""
    opcode = instruction.opcode
    if opcode not in KNOWN_OPCODES or opcode in _NEVER | COLLECTIVES | RUN_IN_PLACE:
        return False
    traits = TRAITS[opcode]
    return not traits.is_async and traits.stage is None and not effects.has(instruction)


def _is_alone(stages: Stages, instruction: HloInstruction) -> bool:
    """Whether no part of a result has to lie where another value lies."""
    if instruction.opcode in FORWARDS:
        return True
    return all(
        len(stages.aliasing.buffer_of[value].values) == 1
        for part in stages.dataflow.value_sets[instruction]
        for value in part
        if value.instruction is instruction
    )


def _find_limits(stages: Stages, builder: FlowBuilder, flow: Flow) -> list[tuple[int, ...]]:
    """The nodes that write the next value over one that each node holds."""
    places = builder.places.of(flow.computation)
    written: dict[object, set[int]] = {}
    for value, place in places.items():
        written.setdefault(stages.aliasing.buffer_of[value], set()).add(place.made_by)
    limits: list[tuple[int, ...]] = []
    for instruction in flow.nodes:
        found: set[int] = set()
        for part in stages.dataflow.value_sets[instruction]:
            for value in part:
                writers = sorted(written[stages.aliasing.buffer_of[value]] - {AT_START})
                following = bisect_right(writers, places[value].made_by)
                found.update(writers[following : following + 1])
        limits.append(tuple(sorted(found)))
    return limits
