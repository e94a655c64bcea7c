"""Buffers → allocations: the decisions, in XLA's order.

In: the analyses and the options. Out: every allocation with the slices of its values. Mirrors
`BufferAssigner` of `service/buffer_assignment.cc`:

0. buffers that an earlier pass has placed go where it said, one allocation per memory space,
1. buffers of the program's own flow, large ones first: constants, parameters and tuple tables get
   allocations of their own; results reuse one that is idle or get a new one; temporaries reuse one
   that is idle or wait,
2. waiting temporaries are packed into one heap per memory space,
3. values inside reductions and the like get thread-local allocations,
4. everything temporary is put behind one another into one allocation per memory space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.analysis.alias_rules import can_share_operand_buffer, may_share_with_operand
from hlomem.assign.allocation import BufferAllocation, BufferAssignment, EntryParameter, OffsetSize
from hlomem.assign.packing import pack_best, pack_by_time
from hlomem.assign.reuse import IdleAllocations, Occupancy
from hlomem.assign.simulator import HeapSimulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hlomem.analysis.aliasing import Aliasing, HloBuffer
    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.live_range import LiveRanges
    from hlomem.analysis.values import HloPosition, HloValue
    from hlomem.assign.colors import ColorOf
    from hlomem.assign.preset import Preset
    from hlomem.assign.simulator import Pack
    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.machines.options import Options


def assign_buffers(
    dataflow: Dataflow,
    aliasing: Aliasing,
    live_ranges: LiveRanges,
    color_of: ColorOf,
    options: Options,
    pack: Pack | None,
    preset: Preset,
) -> BufferAssignment:
    """Give every value a slice of an allocation; `pack` places what goes onto heaps.

    What merged fast would almost fill the memory is assigned again, with more care
    (`RunAssignBuffersWithFallback`). Where that saves nothing, the first answer stands, but for the
    place of what was given in the list.
    """

    def assign(options: Options) -> BufferAssignment:
        assigner = _Assigner(dataflow, aliasing, live_ranges, color_of, options)
        assigner.assign_preset_buffers(preset)
        assigner.assign_private_stacks()
        waiting = assigner.assign_global_buffers()
        assigner.assign_heaps(waiting, pack)
        assigner.assign_thread_local_buffers()
        assigner.combine_temporaries()
        return BufferAssignment(assigner.allocations)

    fast = assign(options)
    capacity = options.machine.capacity
    if not options.merges_fast or capacity is None or _needed(fast) <= capacity - _KEPT_FREE:
        return fast
    careful = assign(replace(options, merges_fast=False, packs_by_time=frozenset()))
    if _needed(careful) < _needed(fast):
        return careful
    given_first = sorted(fast.allocations, key=lambda each: each.color not in preset.size_of_color)
    for index, allocation in enumerate(given_first):
        allocation.index = index
    return BufferAssignment(given_first)


_KEPT_FREE = 5 << 29  # bytes of memory that a plan merged fast must leave


def _needed(assignment: BufferAssignment) -> int:
    """Bytes of main memory."""
    return sum(each.size for each in assignment.allocations if each.color == 0)


class _Assigner:
    def __init__(
        self,
        dataflow: Dataflow,
        aliasing: Aliasing,
        live_ranges: LiveRanges,
        color_of: ColorOf,
        options: Options,
    ) -> None:
        self.allocations: list[BufferAllocation] = []
        self._dataflow = dataflow
        self._aliasing = aliasing
        self._live_ranges = live_ranges
        self._range_of = live_ranges.range_of
        self._color_of = color_of
        self._options = options
        self._alias_rules = options.machine.alias_rules(options)
        self._entry = dataflow.module.entry
        self._aliased_parameters = {
            (alias.parameter_number, alias.parameter_index)
            for alias in dataflow.module.input_output_alias
        }
        self._size_of_buffer = _buffer_sizes(aliasing, options)
        self._contexts = {
            each
            for each in _handed_on(dataflow, aliasing)
            if self._size_of_buffer[each] and not color_of[each.values[0]]
        }
        # Only what may be shared: allocations that are written to, one value after the other.
        self._shared_allocation_of: dict[HloValue, BufferAllocation] = {}
        self._occupancy: dict[BufferAllocation, Occupancy] = {}
        self._idle = IdleAllocations(live_ranges.end)
        self._reusable: list[BufferAllocation] = []
        self._number_of: dict[BufferAllocation, int] = {}
        self._is_preset: set[HloBuffer] = set()
        self._free_at: dict[BufferAllocation, int] = {}  # contexts, with the end of what they hold

    # Step 0.

    def assign_preset_buffers(self, preset: Preset) -> None:
        """Take over what an earlier pass has placed (`AssignPresetBuffers`)."""
        allocation_of = {}
        for color, size in preset.size_of_color.items():
            allocation_of[color] = BufferAllocation(len(self.allocations), size, color)
            self.allocations.append(allocation_of[color])
        if not allocation_of:
            return
        for buffer in self._aliasing.buffers:
            for value in buffer.values:
                place = preset.place_of.get((value.instruction.name, value.index))
                if place is not None and self._color_of[value] in allocation_of:
                    self._is_preset.add(buffer)
                    for member in buffer.values:
                        allocation_of[self._color_of[value]].slices[member] = place
                    break

    def assign_private_stacks(self) -> None:
        """Let what lies on the stack of another core begin at 0, whatever else lies there."""
        stack_colors = self._options.machine.stack_colors
        if not stack_colors:
            return
        allocation_of: dict[int, BufferAllocation] = {}
        for buffer in self._in_order(self._dataflow.call_graph.is_in_flow):
            color = self._color_of[buffer.values[0]]
            if color not in stack_colors:
                continue
            size = self._size_of_buffer[buffer]
            if color not in allocation_of:
                allocation_of[color] = BufferAllocation(len(self.allocations), 0, color)
                self.allocations.append(allocation_of[color])
            allocation = allocation_of[color]
            allocation.size = max(allocation.size, size)
            allocation.slices |= dict.fromkeys(buffer.values, OffsetSize(0, size))
            self._is_preset.add(buffer)

    # Step 1.

    def assign_global_buffers(self) -> list[HloValue]:
        """Assign the buffers of the program's own flow; returns the values left to the heap."""
        waiting: list[HloValue] = []
        for buffer in self._in_order(self._dataflow.call_graph.is_in_flow):
            if buffer in self._contexts:
                self._assign_contexts()
            elif not self._assign_special(buffer) and not self._reuse(buffer):
                if buffer in self._aliasing.live_out:
                    self._make_reusable(self._new_allocation(buffer))
                else:
                    waiting += buffer.values
        return waiting

    def _assign_contexts(self) -> None:
        """Put all contexts into one place, even those of operations that overlap."""
        if self._free_at:
            return
        largest, *others = sorted(
            self._contexts, key=lambda each: (-self._size_of_buffer[each], each.id)
        )
        allocation = self._new_allocation(largest)
        for buffer in others:
            self._add(allocation, buffer, self._size_of_buffer[buffer])
        self._free_at[allocation] = max(map(self._last_end, self._contexts))

    def _in_order(self, is_wanted: Callable[[HloComputation], bool]) -> list[HloBuffer]:
        """Buffers of some computations: large, then live-out, then early ones first.

        Where they are merged fast, those that begin to live first come first of all.
        """
        position = self._post_order_positions(is_wanted)
        live_out, size_of = self._aliasing.live_out, self._size_of_buffer
        keyed = []
        for buffer in self._aliasing.buffers:
            values = buffer.values
            place = position.get(values[0].instruction)
            if place is None or buffer in self._is_preset:
                continue
            start = 0
            if self._options.merges_fast:
                start, place = self._first_start(buffer), 0
            elif len(values) > 1:
                place = min(position[value.instruction] for value in values)
            is_inner = buffer not in live_out
            keyed.append((start, -size_of[buffer], is_inner, place, buffer.id, buffer))
        keyed.sort()
        return [entry[-1] for entry in keyed]

    def _last_end(self, buffer: HloBuffer) -> int:
        return max(self._range_of[value].end for value in buffer.values)

    def _first_start(self, buffer: HloBuffer) -> int:
        return min(self._range_of[v].start if v in self._range_of else 0 for v in buffer.values)

    def _post_order_positions(
        self, is_wanted: Callable[[HloComputation], bool]
    ) -> dict[HloInstruction, int]:
        """Instructions numbered: callers before callees, operands before users.

        `CallGraph::VisitNodes` goes through calls as they stand in XLA's lists, and so does
        `HloModule::Print`: the order of the text is the one that is wanted.
        """
        position: dict[HloInstruction, int] = {}
        for computation in reversed(self._dataflow.module.computations):
            if is_wanted(computation):
                for instruction in self._dataflow.call_graph.post_order(computation):
                    position[instruction] = len(position)
        return position

    def _assign_special(self, buffer: HloBuffer) -> bool:
        """Give a constant, an entry parameter or a tuple table an allocation of its own."""
        for value in buffer.values:
            instruction = value.instruction
            opcode = instruction.opcode
            if opcode == "constant":
                if self._options.allocate_constants:
                    self._new_allocation(buffer, is_constant=True)
                return True
            if opcode == "parameter" and instruction.parent is self._entry:
                number = instruction.parameter_number
                is_aliased = (number, value.index) in self._aliased_parameters
                parameter = EntryParameter(number, value.index, is_aliased)
                allocation = self._new_allocation(buffer, parameter=parameter)
                if is_aliased:
                    self._make_reusable(allocation)
                return True
        for value in buffer.values:
            if value.shape.is_tuple:
                self._new_allocation(buffer, is_tuple=True)
                return True
        return False

    def _reuse(self, buffer: HloBuffer) -> bool:
        """Put a buffer into an allocation that is idle while it lives, if there is one."""
        for allocation in self._candidates(buffer):
            if self._may_assign(allocation, buffer):
                self._add(allocation, buffer, self._size_of_buffer[buffer])
                if allocation in self._free_at:
                    self._free_at[allocation] = self._last_end(buffer)
                return True
        return False

    def _candidates(self, buffer: HloBuffer) -> Iterable[BufferAllocation]:
        """Where the operands are, then every reusable allocation, the newest first."""
        allocation_of, sets = self._shared_allocation_of, self._dataflow.value_sets
        for value in buffer.values:
            if value.index or value.instruction.shape.is_tuple:
                continue
            for operand in value.instruction.operands:
                found = [allocation_of[each] for each in sets[operand][0] if each in allocation_of]
                if found:
                    yield from sorted(set(found), key=lambda each: each.index)
        if self._options.merges_fast:
            yield from self._free_contexts(buffer)
            return
        half_steps = [self._exclusive_half_steps(value) for value in buffer.values]
        for number in self._idle.idle(half_steps):
            yield self._reusable[number]

    def _free_contexts(self, buffer: HloBuffer) -> list[BufferAllocation]:
        """Allocations whose context is no longer needed, small ones first.

        `FastMergeBufferAllocationsManagerForComputationsWithoutOrdering`; of all others it knows,
        which hold results, none is ever free.
        """
        size, start = self._size_of_buffer[buffer], self._first_start(buffer)
        free = [each for each, end in self._free_at.items() if end <= start and each.size >= size]
        return sorted(free, key=lambda each: (each.size, each.index))

    def _exclusive_half_steps(self, value: HloValue) -> tuple[int, int]:
        """When nothing else may be alive in the same place, counted in half steps of time.

        At the ends something may: what the value is made from in place, and what is made from it.
        """
        start, end = self._range_of[value]
        sequence = self._live_ranges.sequence
        first, last = 2 * start, 2 * end
        if may_share_with_operand(value.instruction, self._alias_rules):
            first += 1
        if end < len(sequence) and may_share_with_operand(sequence[end], self._alias_rules):
            last -= 1
        return first, last

    def _may_assign(self, allocation: BufferAllocation, buffer: HloBuffer) -> bool:
        """Whether a buffer fits into an allocation in size and time (`MaybeAssignBuffer`)."""
        size = self._size_of_buffer[buffer]
        if size > allocation.size or self._color_of[buffer.values[0]] != allocation.color:
            return False
        if buffer in self._aliasing.live_out and size != allocation.size:
            return False
        occupancy = self._occupancy[allocation]
        return not any(self._interferes(value, allocation, occupancy) for value in buffer.values)

    def _interferes(
        self, value: HloValue, allocation: BufferAllocation, occupancy: Occupancy
    ) -> bool:
        live_range = self._range_of[value]
        for other, start, end in occupancy.overlapping(live_range):
            if live_range.end == start:
                if not self._can_take_place_of(value, other):
                    return True
            elif end != live_range.start or not self._can_take_place_of(other, value):
                return True
        if value.instruction.opcode != "copy":
            return False
        # A copy never lies where what it copies lies, at any time.
        operand = value.instruction.operands[0]
        return any(
            each in allocation.slices
            for part in self._dataflow.value_sets[operand]
            for each in part
        )

    def _can_take_place_of(self, operand: HloValue, user: HloValue) -> bool:
        """Whether `user` may be written over `operand`, which ends as it begins."""
        instruction = user.instruction
        if instruction.opcode == "copy":
            return False
        positions = operand.positions
        if not self._options.shares_at_any_position:
            positions = [self._last_position(operand)]
        return any(
            position.instruction in instruction.operands
            and can_share_operand_buffer(
                self._dataflow,
                position.instruction,
                position.shape_index,
                instruction,
                user.index,
                self._alias_rules,
            )
            for position in positions
        )

    # Step 2.

    def assign_heaps(self, waiting: list[HloValue], pack: Pack | None) -> None:
        """Pack temporaries, one heap per memory space."""
        by_color: dict[int, list[HloValue]] = {}
        for value in waiting:
            by_color.setdefault(self._color_of[value], []).append(value)
        for color in sorted(by_color):
            simulator = HeapSimulator(
                self._dataflow,
                self._aliasing,
                self._range_of,
                self._size_of_buffer.__getitem__,
                self._alias_rules,
            )
            heap = simulator.run(
                by_color[color], self._alignment(color), pack or self._own_pack(color)
            )
            allocation = BufferAllocation(len(self.allocations), heap.heap_size, color)
            self.allocations.append(allocation)
            for value, offset in heap.offset_of.items():
                allocation.slices[value] = OffsetSize(offset, heap.size_of[value])

    def _own_pack(self, color: int) -> Pack:
        """XLA's algorithm: only a memory whose size it knows is packed fast."""
        return pack_by_time if color in self._options.packs_by_time else pack_best

    # Step 3.

    def assign_thread_local_buffers(self) -> None:
        """Give the values of embedded computations allocations of their own."""
        is_thread_local = self._dataflow.call_graph.is_thread_local
        if self._options.sorts_thread_local_buffers:
            buffers = self._in_order(is_thread_local)
        else:  # by id
            wanted = {each for each in self._dataflow.module.computations if is_thread_local(each)}
            every = self._aliasing.buffers
            buffers = [each for each in every if each.values[0].instruction.parent in wanted]
        for buffer in buffers:
            if any(value.instruction.opcode == "constant" for value in buffer.values):
                if self._options.allocate_constants:
                    self._new_allocation(buffer, is_constant=True)
            else:
                self._new_allocation(buffer, is_thread_local=True)

    # Step 4.

    def combine_temporaries(self) -> None:
        """Put all temporary allocations of a memory space behind one another.

        `CombineTempAllocations`. Temporaries go to the end, the others keep their places except
        those that change them with a temporary.
        """
        kept, temporaries = _partition(self.allocations)
        combined: dict[int, BufferAllocation] = {}
        for temporary in temporaries:
            target = combined.setdefault(temporary.color, temporary)
            if target is temporary:
                continue
            alignment = self._alignment(temporary.color)
            base = -(-target.size // alignment) * alignment
            target.size = base + temporary.size
            for value, (offset, size) in temporary.slices.items():
                target.slices[value] = OffsetSize(base + offset, size)
        stack_colors = self._options.machine.stack_colors
        stacks_first = sorted(combined.values(), key=lambda each: each.color not in stack_colors)
        self.allocations = [*kept, *stacks_first]
        for index, allocation in enumerate(self.allocations):
            allocation.index = index

    # Making and filling allocations.

    def _new_allocation(
        self,
        buffer: HloBuffer,
        *,
        parameter: EntryParameter | None = None,
        is_constant: bool = False,
        is_tuple: bool = False,
        is_thread_local: bool = False,
    ) -> BufferAllocation:
        size = self._size_of_buffer[buffer]
        allocation = BufferAllocation(
            len(self.allocations),
            size,
            self._color_of[buffer.values[0]],
            dict.fromkeys(buffer.values, OffsetSize(0, size)),
            is_thread_local=is_thread_local,
            is_tuple=is_tuple,
            is_constant=is_constant,
            maybe_live_out=buffer in self._aliasing.live_out,
            parameter=parameter,
        )
        self.allocations.append(allocation)
        if allocation.is_reusable and not allocation.is_readonly:
            self._occupancy[allocation] = Occupancy()
            self._occupy(allocation, buffer)
        return allocation

    def _make_reusable(self, allocation: BufferAllocation) -> None:
        number = self._number_of[allocation] = len(self._reusable)
        self._reusable.append(allocation)
        self._idle.register(number)
        for value in allocation.slices:
            self._idle.occupy(number, self._range_of[value])

    def _add(self, allocation: BufferAllocation, buffer: HloBuffer, size: int) -> None:
        """Put another buffer into an allocation."""
        allocation.slices.update(dict.fromkeys(buffer.values, OffsetSize(0, size)))
        if buffer in self._aliasing.live_out:
            allocation.maybe_live_out = True
        self._occupy(allocation, buffer)

    def _occupy(self, allocation: BufferAllocation, buffer: HloBuffer) -> None:
        """Note when an allocation that may be shared is in use."""
        occupancy = self._occupancy[allocation]
        number = self._number_of.get(allocation)
        for value in buffer.values:
            self._shared_allocation_of[value] = allocation
            live_range = self._range_of[value]
            occupancy.add(value, live_range)
            if number is not None:
                self._idle.occupy(number, live_range)

    def _alignment(self, color: int) -> int:
        return self._options.machine.alignment(color) or 1

    def _last_position(self, value: HloValue) -> HloPosition:
        """The position at which a value's live range ends (`LiveRangeBounds::end_position`)."""
        return self._live_ranges.end_position(value)


def _handed_on(dataflow: Dataflow, aliasing: Aliasing) -> set[HloBuffer]:
    """The parts of contexts that an async-start hands on to an async-update.

    Such operations run on another core of a TPU.
    """
    updates = [each for each in dataflow.value_sets if each.opcode == "async-update"]
    return {
        aliasing.buffer_of[value]
        for update in updates
        for part in dataflow.value_sets[update]
        for value in part
        if value.instruction is update and value.index[:1] == _CONTEXT and not value.shape.is_tuple
    }


_CONTEXT = (2,)


def _buffer_sizes(aliasing: Aliasing, options: Options) -> dict[HloBuffer, int]:
    """Bytes of every buffer: those of its largest value."""
    size_of_shape: dict[Shape, int] = {}
    sizes: dict[HloBuffer, int] = {}
    for buffer in aliasing.buffers:
        largest = 0
        for value in buffer.values:
            shape = value.shape
            size = size_of_shape.get(shape)
            if size is None:
                size = size_of_shape[shape] = options.machine.size_of(shape)
            if size > largest:
                largest = size
        sizes[buffer] = largest
    return sizes


def _partition(
    allocations: list[BufferAllocation],
) -> tuple[list[BufferAllocation], list[BufferAllocation]]:
    """What stays and what is temporary, each in the order `std::partition` leaves it in.

    The first temporary from the front changes places with the last other from the back.
    """
    order = allocations[:]
    first, last = 0, len(order)
    while True:
        while first < last and not order[first].is_preallocated_temp:
            first += 1
        while first < last and order[last - 1].is_preallocated_temp:
            last -= 1
        if first >= last:
            return order[:first], order[first:]
        last -= 1
        order[first], order[last] = order[last], order[first]
        first += 1
