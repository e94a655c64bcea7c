"""One computation as a search for orders sees it: what must come before what, what is alive when.

In: the stages of a plan up to its colors. Out: a `Flow`, in which instructions, values and buffers
are numbers. An order is legal if it keeps every edge. Edges are operands and control predecessors;
that whatever reads a value does so before the next value of the same buffer is written; that what
has effects outside the program, and what devices do together, keeps its order; and that what runs
between the start and the end of an asynchronous operation goes on hiding it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from hlomem.analysis.alias_rules import can_share_operand_buffer, may_share_with_operand
from hlomem.machines.alias import alias_rules_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.pipeline import Stages

AT_START = -1
"""Instead of the instruction that makes a value: it is there when the computation begins."""


class FlowValue(NamedTuple):
    """A value, by numbers of its computation's `Flow`."""

    buffer: int
    made_by: int
    """The node that makes it, or `AT_START`."""
    readers: tuple[int, ...]
    """The nodes that read it or hand it on; it is needed until the last of them has run."""
    lives_on: bool
    """Whether it is a part of the result, and so needed until the end."""


class FlowLender(NamedTuple):
    """An allocation of a result, or of an argument that a result takes over."""

    size: int
    values: tuple[FlowValue, ...]
    """What of it is the program's own; `buffer` has no meaning here."""


class Flow(Struct, frozen=True, eq=False):
    """A computation whose order is looked for."""

    computation: HloComputation
    nodes: Sequence[HloInstruction]
    """In XLA's order; a node is its place here."""
    before: Sequence[Sequence[int]]
    """The nodes that each node must come after, without duplicates."""
    after: Sequence[Sequence[int]]
    sizes: Sequence[int]
    """Bytes of each buffer."""
    values: Sequence[FlowValue]
    made_by: Sequence[Sequence[int]]
    """The values each node makes."""
    read_by: Sequence[Sequence[int]]
    """The values each node reads."""
    at_start: Sequence[int]
    """The values that are there when the computation begins."""
    shares: Mapping[int, Sequence[tuple[int, tuple[int, ...]]]]
    """By node: a value it makes, and those it may be written over if they are read no more."""
    inner: Mapping[int, int]
    """By node: the most bytes that what it calls needs at once."""
    counted_inside: Mapping[int, frozenset[int]]
    """By node: the buffers that `inner` counts already."""
    lenders: Sequence[FlowLender]
    """Memory of results, which temporaries may borrow while nothing of a result is in it."""


class FlowBuilder:
    """Makes the flows of a module's computations, callees before callers."""

    def __init__(self, stages: Stages, color: int = 0) -> None:
        self._stages = stages
        self._color = color
        self._size_of = _heap_sizes(stages, color)
        self._values_in: dict[HloComputation, list[HloValue]] = {}
        for value in stages.dataflow.values:
            self._values_in.setdefault(value.instruction.parent, []).append(value)
        self._buffers_in: dict[HloComputation, set[HloBuffer]] = {}
        self._number_in: dict[HloComputation, dict[HloInstruction, int]] = {}

    def computations(self) -> list[HloComputation]:
        """Those that run in the program's flow, callees before callers."""
        spans = self._stages.live_ranges.span_of
        return sorted(spans, key=lambda each: spans[each][1])

    def build(self, computation: HloComputation, peaks: Mapping[HloComputation, int]) -> Flow:
        """The flow of a computation; `peaks` are those of what it calls."""
        nodes = self._stages.schedule.sequence(computation)
        number = {instruction: place for place, instruction in enumerate(nodes)}
        self._number_in[computation] = number
        buffers: dict[HloBuffer, int] = {}
        kept: dict[HloValue, int] = {}
        values: list[FlowValue] = []
        for value in self._values_in.get(computation, ()):
            size = self._size_of.get(self._stages.aliasing.buffer_of[value])
            if size:
                kept[value] = len(values)
                values.append(self._value(value, computation, buffers))
        inner, counted = self._called(nodes, peaks, buffers)
        before = self._edges(computation, nodes, number)
        return Flow(
            computation=computation,
            nodes=nodes,
            before=before,
            after=_reversed(before),
            sizes=[self._size_of[buffer] for buffer in buffers],
            values=values,
            made_by=_grouped(((v.made_by, i) for i, v in enumerate(values)), len(nodes)),
            read_by=_grouped(
                ((node, i) for i, v in enumerate(values) for node in v.readers), len(nodes)
            ),
            at_start=[i for i, value in enumerate(values) if value.made_by == AT_START],
            shares=self._shares(nodes, kept),
            inner=inner,
            counted_inside=counted,
            lenders=self._lenders(computation),
        )

    def _lenders(self, computation: HloComputation) -> list[FlowLender]:
        """The memory of results, in the entry; elsewhere there is none to tell."""
        if computation is not self._stages.module.entry:
            return []
        values_of: dict[HloBuffer, list[HloValue]] = {}
        for value in self._values_in.get(computation, ()):
            buffer = self._stages.aliasing.buffer_of[value]
            if buffer in self._stages.aliasing.live_out:
                values_of.setdefault(buffer, []).append(value)
        size_of = self._stages.options.backend.size_of
        return [
            FlowLender(
                max(size_of(value.shape) for value in values),
                tuple(self._value(value, computation, {}) for value in values),
            )
            for values in values_of.values()
            if self._stages.colors[values[0]] == self._color
        ]

    def _value(
        self, value: HloValue, computation: HloComputation, buffers: dict[HloBuffer, int]
    ) -> FlowValue:
        buffer = self._stages.aliasing.buffer_of[value]
        number = self._number_in[computation]
        root = computation.root
        readers = {node for node in self._readers(value, computation) if node is not None}
        made_by = number[value.instruction]
        if value.instruction.opcode == "parameter":
            made_by = AT_START
        return FlowValue(
            buffers.setdefault(buffer, len(buffers)),
            made_by,
            tuple(sorted(readers - {made_by})),
            any(position.instruction is root for position in value.positions),
        )

    def _readers(self, value: HloValue, computation: HloComputation) -> Iterable[int | None]:
        """The nodes at which a value is read or handed on, in this computation or below it."""
        for position, users in zip(
            value.positions, self._stages.dataflow.use_finder.readers(value), strict=True
        ):
            yield self._node(position.instruction, computation)
            for user in users:
                yield self._node(user, computation)

    def _node(self, instruction: HloInstruction, computation: HloComputation) -> int | None:
        """The node of a computation in which an instruction runs; None where it runs elsewhere."""
        callsites = self._stages.call_graph.callsites
        seen = 0
        while instruction.parent is not computation:
            sites = callsites.get(instruction.parent, ())
            if len(sites) != 1 or seen > _MAX_NESTING:
                return None
            instruction = sites[0]
            seen += 1
        return self._number_in[computation].get(instruction)

    def _called(
        self,
        nodes: Sequence[HloInstruction],
        peaks: Mapping[HloComputation, int],
        buffers: Mapping[HloBuffer, int],
    ) -> tuple[dict[int, int], dict[int, frozenset[int]]]:
        """What called computations need, and which of this one's buffers that counts."""
        inner: dict[int, int] = {}
        counted: dict[int, frozenset[int]] = {}
        for node, instruction in enumerate(nodes):
            called = [each for each in instruction.called_computations if each in peaks]
            if called:
                inner[node] = max(peaks[each] for each in called)
                inside = {buffer for each in called for buffer in self._buffers_below(each)}
                counted[node] = frozenset(buffers[each] for each in inside if each in buffers)
        return inner, counted

    def _buffers_below(self, computation: HloComputation) -> set[HloBuffer]:
        """The buffers of values made in a computation or in what it calls."""
        known = self._buffers_in.get(computation)
        if known is None:
            known = {
                self._stages.aliasing.buffer_of[value]
                for value in self._values_in.get(computation, ())
            }
            for callee in self._stages.call_graph.callees.get(computation, ()):
                if callee in self._stages.live_ranges.span_of:
                    known |= self._buffers_below(callee)
            self._buffers_in[computation] = known
        return known

    def _shares(
        self, nodes: Sequence[HloInstruction], kept: Mapping[HloValue, int]
    ) -> dict[int, list[tuple[int, tuple[int, ...]]]]:
        """Which values may be written over which, where neither must share with a third.

        As `HeapSimulator` decides it once it is known that the operand is read no more.
        """
        stages = self._stages
        rules = alias_rules_of(stages.options.backend)
        alone = {each for each in kept if len(stages.aliasing.buffer_of[each].values) == 1}
        made_at: dict[HloInstruction, list[HloValue]] = {}
        for value in alone:
            made_at.setdefault(value.instruction, []).append(value)
        found: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        for node, instruction in enumerate(nodes):
            if instruction.opcode == "copy" or not may_share_with_operand(instruction, rules):
                continue
            for value in sorted(made_at.get(instruction, ()), key=lambda each: each.id):
                over = [
                    kept[candidate]
                    for operand in dict.fromkeys(instruction.operands)
                    for candidate in stages.dataflow.value_sets[operand][0]
                    if candidate in alone
                    and candidate.instruction in instruction.operands
                    and can_share_operand_buffer(
                        stages.dataflow,
                        candidate.instruction,
                        candidate.index,
                        instruction,
                        value.index,
                        rules,
                    )
                ]
                if over:
                    found.setdefault(node, []).append((kept[value], tuple(dict.fromkeys(over))))
        return found

    # Edges.

    def _edges(
        self,
        computation: HloComputation,
        nodes: Sequence[HloInstruction],
        number: Mapping[HloInstruction, int],
    ) -> list[list[int]]:
        before: list[set[int]] = [set() for _ in nodes]
        for node, instruction in enumerate(nodes):
            needed = (*instruction.operands, *instruction.control_predecessors)
            before[node].update(number[each] for each in needed)
        for earlier, later in self._rewrites(computation):
            before[later].add(earlier)
        for earlier, later in _kept_sequences(nodes):
            before[later].add(earlier)
        return [sorted(each) for each in before]

    def _rewrites(self, computation: HloComputation) -> Iterable[tuple[int, int]]:
        """A buffer's next value is written after all have read the one before."""
        in_buffer: dict[HloBuffer, list[HloValue]] = {}
        for value in self._values_in.get(computation, ()):
            in_buffer.setdefault(self._stages.aliasing.buffer_of[value], []).append(value)
        number = self._number_in[computation]
        for values in in_buffer.values():
            if len(values) == 1:
                continue
            in_order = sorted(values, key=lambda each: (_made_at(each, number), each.id))
            for value, following in zip(in_order, in_order[1:], strict=False):
                later = _made_at(following, number)
                if later == AT_START:
                    continue
                for reader in {_made_at(value, number), *self._readers(value, computation)}:
                    if reader is not None and AT_START < reader < later:
                        yield reader, later


_MAX_NESTING = 1000


def _made_at(value: HloValue, number: Mapping[HloInstruction, int]) -> int:
    is_given = value.instruction.opcode == "parameter"
    return AT_START if is_given else number[value.instruction]


def _kept_sequences(nodes: Sequence[HloInstruction]) -> Iterable[tuple[int, int]]:
    """What keeps its order among its like: effects outside the program, collectives."""
    last: int | None = None
    for node, instruction in enumerate(nodes):
        if has_effect(instruction):
            if last is not None:
                yield last, node
            last = node


_EFFECTS = frozenset(
    [
        "all-gather",
        "all-gather-start",
        "all-reduce",
        "all-reduce-start",
        "all-to-all",
        "collective-broadcast",
        "collective-permute",
        "collective-permute-start",
        "infeed",
        "outfeed",
        "ragged-all-to-all",
        "recv",
        "recv-done",
        "reduce-scatter",
        "rng-get-and-update-state",
        "send",
        "send-done",
    ]
)


def has_effect(instruction: HloInstruction) -> bool:
    """Whether its order among its like must stay: others see it happen."""
    if instruction.opcode == "custom-call":
        return instruction.attributes.get("custom_call_has_side_effect") == "true"
    return instruction.opcode in _EFFECTS


def _heap_sizes(stages: Stages, color: int) -> dict[HloBuffer, int]:
    """Bytes of the buffers of a memory space that share the heap of temporaries."""
    size_of = stages.options.backend.size_of
    entry = stages.module.entry
    sizes: dict[HloBuffer, int] = {}
    for buffer in stages.aliasing.buffers:
        values = buffer.values
        if stages.colors[values[0]] != color or buffer in stages.aliasing.live_out:
            continue
        if any(_is_apart(value, entry) for value in values):
            continue
        if stages.call_graph.is_in_flow(values[0].instruction.parent):
            sizes[buffer] = max(size_of(value.shape) for value in values)
    return sizes


def _is_apart(value: HloValue, entry: HloComputation) -> bool:
    """Whether a value has an allocation of its own: given, constant, or a table of pointers."""
    opcode = value.instruction.opcode
    is_given = opcode == "parameter" and value.instruction.parent is entry
    return is_given or opcode == "constant" or value.shape.is_tuple


def _reversed(before: Sequence[Sequence[int]]) -> list[list[int]]:
    after: list[list[int]] = [[] for _ in before]
    for node, needed in enumerate(before):
        for each in needed:
            after[each].append(node)
    return after


def _grouped(pairs: Iterable[tuple[int, int]], count: int) -> list[list[int]]:
    groups: list[list[int]] = [[] for _ in range(count)]
    for key, member in pairs:
        if key >= 0:
            groups[key].append(member)
    return groups
