"""One computation as a search for orders sees it, in numbers: edges, values, buffers, lenders."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from hlomem.analysis.alias_rules import can_share_operand_buffer, may_share_with_operand
from hlomem.analysis.machine_rules import rules_of
from hlomem.base.quantities import MAIN_MEMORY
from hlomem.opt.once import once
from hlomem.opt.orders.edges import AT_START, Edges, Place, Places
from hlomem.opt.orders.model import peak_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.analysis.values import HloValue
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.pipeline import Stages


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
    """The values in it that are the program's own; `buffer` has no meaning here."""
    meets: tuple[frozenset[int], ...]
    """For each of these the temporaries that it may be written over, or that may be over it."""


class Flow(Struct, frozen=True, eq=False):
    """A computation whose order is looked for."""

    computation: HloComputation
    nodes: Sequence[HloInstruction]
    """In XLA's order; a node is its index here."""
    before: Sequence[Sequence[int]]
    """The nodes that each node must come after, without duplicates."""
    after: Sequence[Sequence[int]]
    buffers: Sequence[HloBuffer]
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
    origins: Sequence[HloValue] = ()
    """The analysis's value of each."""

    def size(self, value: int) -> int:
        return self.sizes[self.values[value].buffer]


class FlowBuilder:
    """Makes the flows of a module's computations, callees before callers."""

    def __init__(
        self,
        stages: Stages,
        *,
        color: int = MAIN_MEMORY,
        may_reorder_collectives: bool = False,
        keeps_overlap: bool = True,
        counts_all: bool = False,
        counts_results: bool = False,
    ) -> None:
        """With `counts_all` arguments and results count, too, not the temporaries alone.

        With `counts_results` results do, and arguments that they take over the memory of; there
        are no lenders then, but the sizes of their memory, `lent`.
        """
        self._stages = stages
        self._color = color
        self._size_of = _all_sizes(stages) if counts_all else _heap_sizes(stages, color)
        self._results = _result_sizes(stages, color) if counts_results else {}
        self._size_of |= self._results
        self._places = Places(stages)
        self._edges = Edges(
            stages,
            self._places,
            may_reorder_collectives=may_reorder_collectives,
            keeps_overlap=keeps_overlap,
        )
        self._buffers_in: dict[HloComputation, set[HloBuffer]] = {}
        self._built: dict[HloComputation, Flow] = {}
        """Without what depends on the peaks."""
        self._alias_rules = rules_of(stages.options.machine)

    @property
    def places(self) -> Places:
        """The positions where the values of the computations are made and read."""
        return self._places

    @property
    def lent(self) -> list[int]:
        """Bytes of each result that counts."""
        return list(self._results.values())

    def computations(self) -> list[HloComputation]:
        """Those that run in the program's flow, callees before callers."""
        spans = self._stages.live_ranges.span_of
        return sorted(spans, key=lambda computation: spans[computation][1])

    def peaks(self) -> Mapping[HloComputation, int]:
        """Bytes that each computation needs at once, in its own order, callees included."""
        return once(self, "peaks", self._find_peaks)

    def _find_peaks(self) -> dict[HloComputation, int]:
        peaks: dict[HloComputation, int] = {}
        for computation in self.computations():
            flow = self.build(computation, peaks)
            peaks[computation] = peak_of(flow, range(len(flow.nodes)))
        return peaks

    def build(self, computation: HloComputation, peaks: Mapping[HloComputation, int]) -> Flow:
        """The flow of a computation; `peaks` are those of what it calls."""
        flow = self._built.get(computation)
        if flow is None:
            flow = self._built[computation] = self._build(computation)
        numbers = {buffer: number for number, buffer in enumerate(flow.buffers)}
        inner, counted = self._called(flow.nodes, peaks, numbers)
        return replace(flow, inner=inner, counted_inside=counted)

    def _build(self, computation: HloComputation) -> Flow:
        nodes = self._stages.schedule.sequence(computation)
        buffers: dict[HloBuffer, int] = {}
        number_of: dict[HloValue, int] = {}
        values: list[FlowValue] = []
        for value, place in self._places.of(computation).items():
            buffer = self._stages.aliasing.buffer_of[value]
            if place.is_own and self._size_of.get(buffer):
                number_of[value] = len(values)
                values.append(_flow_value(place, buffers.setdefault(buffer, len(buffers))))
        before = self._edges.before(computation)
        return Flow(
            computation=computation,
            nodes=nodes,
            before=before,
            after=_reversed(before),
            buffers=list(buffers),
            sizes=[self._size_of[buffer] for buffer in buffers],
            values=values,
            made_by=_grouped(((v.made_by, i) for i, v in enumerate(values)), len(nodes)),
            read_by=_grouped(
                ((node, i) for i, v in enumerate(values) for node in v.readers), len(nodes)
            ),
            at_start=[i for i, value in enumerate(values) if value.made_by == AT_START],
            shares=self._shares(nodes, number_of),
            inner={},
            counted_inside={},
            lenders=self._lenders(computation, number_of),
            origins=list(number_of),
        )

    def _lenders(
        self, computation: HloComputation, number_of: Mapping[HloValue, int]
    ) -> list[FlowLender]:
        """The memory of results, in the entry; elsewhere there is none to tell."""
        if computation is not self._stages.module.entry or self._results:
            return []
        size_of = self._stages.options.machine.size_of
        lent: dict[HloBuffer, list[HloValue]] = {}
        places = self._places.of(computation)
        for value in places:
            buffer = self._stages.aliasing.buffer_of[value]
            is_lent = buffer in self._stages.aliasing.live_out
            if is_lent and self._stages.colors[value] == self._color:
                lent.setdefault(buffer, []).append(value)
        numbered: dict[HloInstruction, list[HloValue]] = {}
        for value in number_of:
            for position in value.positions:
                numbered.setdefault(position.instruction, []).append(value)
        return [
            FlowLender(
                max(size_of(value.shape) for value in values),
                tuple(_flow_value(places[value], 0) for value in values),
                tuple(self._meetings(value, numbered, number_of) for value in values),
            )
            for values in lent.values()
        ]

    def _meetings(
        self,
        lent: HloValue,
        numbered: Mapping[HloInstruction, Sequence[HloValue]],
        number_of: Mapping[HloValue, int],
    ) -> frozenset[int]:
        """The temporaries that a value of a result may be written over, and those over it."""
        under = [
            number_of[value]
            for operand in lent.instruction.operands
            for value in numbered.get(operand, ())
            if self._may_be_over(lent, value)
        ]
        over = [
            number_of[value]
            for position in lent.positions
            for user in position.instruction.users
            for value in numbered.get(user, ())
            if value.instruction is user and self._may_be_over(value, lent)
        ]
        return frozenset((*under, *over))

    def _may_be_over(self, value: HloValue, operand: HloValue) -> bool:
        """Whether a value may be written over one that its instruction reads last."""
        instruction, rules = value.instruction, self._alias_rules
        if instruction.opcode == "copy" or not may_share_with_operand(instruction, rules):
            return False
        return any(
            position.instruction in instruction.operands
            and can_share_operand_buffer(
                self._stages.dataflow,
                position.instruction,
                position.shape_index,
                instruction,
                value.index,
                rules,
            )
            for position in operand.positions
        )

    def _called(
        self,
        nodes: Sequence[HloInstruction],
        peaks: Mapping[HloComputation, int],
        buffers: Mapping[HloBuffer, int],
    ) -> tuple[dict[int, int], dict[int, frozenset[int]]]:
        inner: dict[int, int] = {}
        counted: dict[int, frozenset[int]] = {}
        for node, instruction in enumerate(nodes):
            called = [callee for callee in instruction.called_computations if callee in peaks]
            if called:
                inner[node] = max(peaks[callee] for callee in called)
                inside = {buffer for callee in called for buffer in self._buffers_below(callee)}
                counted[node] = frozenset(buffers[buffer] for buffer in inside if buffer in buffers)
        return inner, counted

    def _buffers_below(self, computation: HloComputation) -> set[HloBuffer]:
        known = self._buffers_in.get(computation)
        if known is None:
            known = {
                self._stages.aliasing.buffer_of[value]
                for value, place in self._places.of(computation).items()
                if place.is_own
            }
            for callee in self._stages.call_graph.callees.get(computation, ()):
                if callee in self._stages.live_ranges.span_of:
                    known |= self._buffers_below(callee)
            self._buffers_in[computation] = known
        return known

    def _shares(
        self, nodes: Sequence[HloInstruction], kept: Mapping[HloValue, int]
    ) -> dict[int, list[tuple[int, tuple[int, ...]]]]:
        """Pairs of values that may share bytes with no third, as `HeapSimulator` decides it."""
        stages = self._stages
        rules = self._alias_rules
        alone = {value for value in kept if len(stages.aliasing.buffer_of[value].values) == 1}
        made_at: dict[HloInstruction, list[HloValue]] = {}
        for value in alone:
            made_at.setdefault(value.instruction, []).append(value)
        found: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        for node, instruction in enumerate(nodes):
            if instruction.opcode == "copy" or not may_share_with_operand(instruction, rules):
                continue
            for value in sorted(made_at.get(instruction, ()), key=lambda value: value.id):
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
        return self._with_results(found, nodes, kept) if self._results else found

    def _with_results(
        self,
        found: dict[int, list[tuple[int, tuple[int, ...]]]],
        nodes: Sequence[HloInstruction],
        kept: Mapping[HloValue, int],
    ) -> dict[int, list[tuple[int, tuple[int, ...]]]]:
        """Further pairs, of which one lies in the memory of a result, with whichever others."""
        stages = self._stages
        buffer_of, value_sets = stages.aliasing.buffer_of, stages.dataflow.value_sets
        for node, instruction in enumerate(nodes):
            read = [one for part in instruction.operands for one in value_sets[part][0]]
            for value in [v for part in value_sets[instruction] for v in part]:
                if value.instruction is not instruction or value not in kept:
                    continue
                over = [
                    kept[one]
                    for one in dict.fromkeys(read)
                    if one in kept
                    and buffer_of[one] is not buffer_of[value]
                    and (buffer_of[one] in self._results or buffer_of[value] in self._results)
                    and self._may_be_over(value, one)
                ]
                if over:
                    found.setdefault(node, []).append((kept[value], tuple(over)))
        return found


def flows_of(stages: Stages, *, may_reorder_collectives: bool = False) -> FlowBuilder:
    """The flows of a plan, its temporaries counted and its overlap kept; made once."""
    return once(
        stages,
        ("flows", may_reorder_collectives),
        lambda: FlowBuilder(stages, may_reorder_collectives=may_reorder_collectives),
    )


def _flow_value(place: Place, buffer: int) -> FlowValue:
    return FlowValue(buffer, place.made_by, place.touched_by, place.lives_on)


def _heap_sizes(stages: Stages, color: int) -> dict[HloBuffer, int]:
    """Bytes of the buffers of a memory space that share the heap of temporaries."""
    size_of = stages.options.machine.size_of
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


def _result_sizes(stages: Stages, color: int) -> dict[HloBuffer, int]:
    """Bytes of the buffers of a memory space that results lie in."""
    size_of = stages.options.machine.size_of
    return {
        buffer: max(size_of(value.shape) for value in buffer.values)
        for buffer in stages.aliasing.live_out
        if stages.colors[buffer.values[0]] == color
        and not any(
            value.instruction.opcode == "constant" or value.shape.is_tuple
            for value in buffer.values
        )
    }


def _all_sizes(stages: Stages) -> dict[HloBuffer, int]:
    """Bytes of all buffers but constants, as `HeapSimulator` counts them for a whole module."""
    size_of = stages.options.machine.size_of
    return {
        buffer: max(size_of(value.shape) for value in buffer.values)
        for buffer in stages.aliasing.buffers
        if not any(value.instruction.opcode == "constant" for value in buffer.values)
    }


def _is_apart(value: HloValue, entry: HloComputation) -> bool:
    """Whether a value has an allocation of its own: given, constant, or a table of pointers."""
    opcode = value.instruction.opcode
    is_given = opcode == "parameter" and value.instruction.parent is entry
    return is_given or opcode == "constant" or value.shape.is_tuple


def _reversed(before: Sequence[Sequence[int]]) -> list[list[int]]:
    after: list[list[int]] = [[] for _ in before]
    for node, needed in enumerate(before):
        for earlier in needed:
            after[earlier].append(node)
    return after


def _grouped(pairs: Iterable[tuple[int, int]], count: int) -> list[list[int]]:
    groups: list[list[int]] = [[] for _ in range(count)]
    for key, member in pairs:
        if key >= 0:
            groups[key].append(member)
    return groups
