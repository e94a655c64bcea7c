"""The entry with some instructions recomputed, in numbers; a `Step` makes a new state."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from hlomem.hlo.library_calls import is_library_call
from hlomem.hlo.opcodes import COLLECTIVES, KNOWN_OPCODES, RUN_IN_PLACE, TRAITS
from hlomem.opt.goal import ALL_SCOPES, Scopes
from hlomem.opt.once import once
from hlomem.opt.orders.edges import AT_START
from hlomem.opt.orders.effects import Effects
from hlomem.opt.orders.flow import Flow, FlowBuilder, flows_of
from hlomem.opt.orders.model import levels_of
from hlomem.opt.remat.edit import SUFFIX, Clone, Edit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.pipeline import Stages

FORWARDS = frozenset({"bitcast", "get-tuple-element"})
"""Opcodes that hand on a value of their operand, and cost nothing to do again."""
_ONCE = """
    constant copy-done copy-start domain opt-barrier parameter partition-id replica-id
    rng-bit-generator tuple while
"""
_NEVER = frozenset(_ONCE.split())
"""Opcodes not recomputed, though without effects: no values of their own, states of random
numbers."""


class Step(NamedTuple):
    """One value dropped and recomputed."""

    dropped: int
    """The value that its later readers take from a clone."""
    maker: int
    before: int
    """The node right before which the clones go."""
    clones: tuple[tuple[int, tuple[int, ...]], ...]
    """Each a node and its operands; a negative number -1-i is the i-th clone of this step."""
    moved: Mapping[int, tuple[int, ...]]
    """Nodes that run here instead of where they did, after the clones, with their operands."""
    readers: Mapping[int, tuple[int, ...]]
    """All that touch the value after the clones, with the operands they have from now on."""

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal steps."""
        return self.dropped, self.before, self.clones, tuple(self.moved.items())

    def changed(self) -> set[int]:
        """Nodes that have other operands, or run elsewhere."""
        return {*self.moved, *self.readers}

    def is_apart(self, other: Step) -> bool:
        """Whether two steps may be made in either order: neither changes what the other knows."""
        own, others = self.changed(), other.changed()
        return own.isdisjoint(other.nodes()) and others.isdisjoint(self.nodes())

    def nodes(self) -> set[int]:
        found = {self.maker, self.before, *self.moved, *self.readers}
        for node, operands in (*self.clones, *self.moved.items(), *self.readers.items()):
            found.add(node)
            found.update([operand for operand in operands if operand >= 0])
        return found


class State(Struct, frozen=True, eq=False):
    """A program, and what was recomputed so far."""

    repeatable: Sequence[bool]
    """For each original node, that it may be recomputed."""
    writers: Sequence[tuple[int, ...]]
    """By original node: those that write over its values; nothing may read them after that."""
    flow: Flow
    order: list[int]
    origin: list[int]
    """By node the original that it is, or is a clone of."""
    operands: list[tuple[int, ...]]
    holds: list[tuple[int, ...]]
    """By node the temporaries in its result, part by part."""
    waiting: Sequence[tuple[int, ...]]
    """By original node those that wait for it by a control dependency, as its clones need not."""
    full: list[int]
    """Bytes of each buffer wherever it lies; in the flow those that lie elsewhere take none."""

    @property
    def count(self) -> int:
        """The original nodes."""
        return len(self.writers)

    def levels(self) -> list[int]:
        """Bytes alive while each node of the order runs."""
        return levels_of(self.flow, self.order)

    def instruction(self, node: int) -> HloInstruction:
        """The original instruction that a node is, or is a clone of."""
        return self.flow.nodes[self.origin[node]]

    def clones(self) -> list[HloInstruction]:
        """The originals of what is recomputed, each as often as it is."""
        return [self.instruction(node) for node in self.clone_nodes()]

    def clone_nodes(self) -> list[int]:
        count = self.count
        return [node for node in self.order if node >= count]

    def may_repeat(self, node: int) -> bool:
        return self.repeatable[self.origin[node]]

    def limits(self, node: int) -> tuple[int, ...]:
        """The nodes that write over what a node holds; a clone's are clones of those."""
        if node < self.count:
            return self.writers[node]
        writers = self.writers[self.origin[node]]
        if not writers:
            return ()
        readers = [one for value in self.holds[node] for one in self.flow.values[value].readers]
        return tuple(sorted({one for one in readers if self.origin[one] in writers}))

    def writes_over(self, node: int, operand: int) -> bool:
        """Whether a node writes its result to the memory of an operand."""
        return self.origin[node] in self.writers[self.origin[operand]]

    def names(self) -> list[str]:
        """By node the name of its instruction, those of clones made of their originals'."""
        names = [instruction.name for instruction in self.flow.nodes]
        names += [""] * (len(self.origin) - len(names))
        taken = set(names)
        for node in self.clone_nodes():
            number, name = 1, f"{names[self.origin[node]]}.{SUFFIX}"
            while name in taken:
                number += 1
                name = f"{names[self.origin[node]]}.{SUFFIX}{number}"
            taken.add(name)
            names[node] = name
        return names

    def edit(self, orders: Mapping[str, tuple[str, ...]]) -> Edit:
        """All steps so far as one edit; `orders` are those of other computations, by names."""
        names = self.names()

        def named(nodes: Sequence[int]) -> tuple[str, ...]:
            return tuple([names[node] for node in nodes])

        clones = tuple(
            Clone(names[node], names[self.origin[node]], named(self.operands[node]))
            for node in self.clone_nodes()
        )
        changed = {
            names[node]: named(self.operands[node])
            for node in range(self.count)
            if named(self.operands[node])
            != tuple([operand.name for operand in self.flow.nodes[node].operands])
        }
        return Edit(
            self.flow.computation.name,
            clones,
            changed,
            {**orders, self.flow.computation.name: named(self.order)},
        )


def above(levels: Sequence[int], target: int) -> int:
    """Bytes above a target, over all places."""
    return sum([level - target for level in levels if level > target])


def start_state(
    stages: Stages,
    scopes: Scopes = ALL_SCOPES,
    computation: HloComputation | None = None,
    *,
    has_awaited: bool = False,
) -> State:
    """The entry of a program as it was planned, or another computation that runs.

    With `has_awaited` calls of libraries that others wait for may be recomputed, too.
    """
    body = computation or stages.module.entry
    key = "state", scopes, body, has_awaited
    return once(stages, key, lambda: _start_state(stages, scopes, body, has_awaited=has_awaited))


def _start_state(
    stages: Stages, scopes: Scopes, computation: HloComputation, *, has_awaited: bool
) -> State:
    builder = flows_of(stages)
    flow = builder.build(computation, builder.peaks())
    full = list(flow.sizes)
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
    nodes = list(range(len(flow.nodes)))
    waiting = _find_waiting(flow)
    repeatable = _find_repeatable(stages, flow, scopes)
    repeatable = [
        may_repeat and (not others or (has_awaited and _may_be_awaited(instruction)))
        for may_repeat, others, instruction in zip(repeatable, waiting, flow.nodes, strict=True)
    ]
    return State(
        repeatable=repeatable,
        writers=_find_limits(stages, builder, flow),
        flow=flow,
        order=nodes,
        origin=nodes.copy(),
        operands=[tuple([node_of[one] for one in node.operands]) for node in flow.nodes],
        holds=holds,
        waiting=waiting,
        full=full,
    )


def _may_be_awaited(instruction: HloInstruction) -> bool:
    """Whether it may run again though others wait: no slice that says where it begins does."""
    return instruction.opcode in FORWARDS or is_library_call(instruction)


def _find_waiting(flow: Flow) -> list[tuple[int, ...]]:
    """By node those that wait for it by a control dependency."""
    waiting: dict[HloInstruction, list[int]] = {}
    for node, instruction in enumerate(flow.nodes):
        for earlier in instruction.control_predecessors:
            waiting.setdefault(earlier, []).append(node)
    return [tuple(waiting.get(instruction, ())) for instruction in flow.nodes]


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


def _find_repeatable(stages: Stages, flow: Flow, scopes: Scopes) -> list[bool]:
    """For each node, that it may run again: equal operands give equal values, in new memory."""
    effects = Effects(stages.call_graph)
    return [
        is_repeatable(instruction, effects)
        and not instruction.control_predecessors
        and _is_apart(stages, instruction, effects)
        and (instruction.opcode in FORWARDS or scopes.has(instruction))
        for instruction in flow.nodes
    ]


def is_repeatable(instruction: HloInstruction, effects: Effects) -> bool:
    """Whether an instruction gives the same for the same operands, and does nothing else."""
    opcode = instruction.opcode
    if opcode not in KNOWN_OPCODES or opcode in _NEVER | COLLECTIVES | RUN_IN_PLACE:
        return False
    if opcode == "custom-call" and not is_library_call(instruction):
        return False
    traits = TRAITS[opcode]
    return not traits.is_async and traits.stage is None and not effects.has(instruction)


def _is_apart(stages: Stages, instruction: HloInstruction, effects: Effects) -> bool:
    """Whether all that must share the memory of a result is made here, and may run again."""
    if instruction.opcode in FORWARDS:
        return True
    return all(
        other.instruction is instruction
        or (other.instruction.parent is instruction.parent and _may_share(other, effects))
        for part in stages.dataflow.value_sets[instruction]
        for value in part
        if value.instruction is instruction
        for other in stages.aliasing.buffer_of[value].values
    )


def _may_share(value: HloValue, effects: Effects) -> bool:
    """Whether a value of the same memory is made again together with another."""
    return value.instruction.shape.is_array and is_repeatable(value.instruction, effects)


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


def anchor(state: State, stages: Stages) -> State:
    """The state with a plan's sizes and order; temporaries once seen count from then on."""
    names = state.names()
    node_of = {names[node]: node for node in state.order}
    order = [node_of[one.name] for one in stages.schedule.sequence(stages.module.entry)]
    return replace(state, order=order, flow=replace(state.flow, sizes=_sizes(state, stages, names)))


def _sizes(state: State, stages: Stages, names: list[str]) -> list[int]:
    """Bytes of the buffers that lie among the temporaries of a plan, or counted before."""
    placed = {
        (value.instruction.name, value.index)
        for allocation in stages.assignment.allocations
        if allocation.is_preallocated_temp
        for value in allocation.slices
    }
    flow = state.flow
    sizes = list(state.full)
    for buffer, known in enumerate(flow.buffers):
        if not any((value.instruction.name, value.index) in placed for value in known.values):
            sizes[buffer] = flow.sizes[buffer]
    for node in state.clone_nodes():
        originals = flow.made_by[state.origin[node]]
        for value, original in zip(flow.made_by[node], originals, strict=True):
            if (names[node], flow.origins[original].index) not in placed:
                sizes[flow.values[value].buffer] = flow.size(value)
    return sizes
