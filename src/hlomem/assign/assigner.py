"""Buffers → allocations, as `BufferAssigner` of `service/buffer_assignment.cc`.

0. Buffers with offsets from an earlier pass get one allocation per memory space (`preset`).
1. Control-flow buffers, by decreasing size: constants, parameters and tuple tables get their own
   allocation; results reuse an idle one or get a new one; temporaries reuse an idle one or wait
   (`shared`, `contexts`).
2. Waiting temporaries are packed into one heap per memory space (`simulator`).
3. Values of embedded computations get thread-local allocations.
4. Temporaries are concatenated into one allocation per memory space.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hlomem.assign.allocation import (
    BufferAllocation,
    BufferAssignment,
    EntryParameter,
    OffsetSize,
    whole,
)
from hlomem.assign.contexts import Contexts
from hlomem.assign.preset import Preset, assign_preset_buffers, assign_private_stacks
from hlomem.assign.problem import Problem, Timeless, with_order
from hlomem.assign.shared import SharedAllocations
from hlomem.assign.simulator import assign_heaps
from hlomem.base.quantities import (
    MAIN_MEMORY,
    AllocationIndex,
    ByteCount,
    Color,
    Offset,
    ParameterNumber,
)

if TYPE_CHECKING:
    from collections.abc import Container, Set

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.analysis.live_range import LiveRanges
    from hlomem.analysis.values import HloValue
    from hlomem.assign.simulator import Pack


class Known(Struct, frozen=True):
    """The decisions of a plan of the same program in another order."""

    waiting: Container[HloBuffer]
    """The buffers that were left to heaps."""
    changed: Set[HloBuffer]
    """The buffers whose live ranges changed relative to others, which must be decided again."""


def assign_buffers(
    timeless: Timeless,
    live_ranges: LiveRanges,
    pack: Pack | None,
    preset: Preset,
    known: Known | None = None,
) -> BufferAssignment:
    """Give every value a slice of an allocation; `pack` packs the heaps.

    A `fast_merge` plan that would almost fill the memory is made again without
    (`RunAssignBuffersWithFallback`). If that saves nothing, the first plan is kept, with preset
    allocations first.
    """
    options = timeless.options
    fast = _assign_once(with_order(timeless, live_ranges), pack, preset, known)
    capacity = options.machine.capacity
    if not options.fast_merge or capacity is None or _main_bytes(fast) <= capacity - _KEPT_FREE:
        return fast
    slow = replace(options, fast_merge=False, fast_merge_colors=frozenset[Color]())
    again = replace(timeless, options=slow)
    careful = _assign_once(with_order(again, live_ranges), pack, preset)
    if _main_bytes(careful) < _main_bytes(fast):
        return careful
    given_first = sorted(
        fast.allocations, key=lambda allocation: allocation.color not in preset.size_of_color
    )
    return BufferAssignment(renumbered(given_first))


_KEPT_FREE = 5 << 29  # bytes that a `fast_merge` plan must leave free


def _main_bytes(assignment: BufferAssignment) -> int:
    return sum(entry.size for entry in assignment.allocations if entry.color == MAIN_MEMORY)


def _assign_once(
    problem: Problem, pack: Pack | None, preset: Preset, known: Known | None = None
) -> BufferAssignment:
    allocations: list[BufferAllocation] = []
    placed = assign_preset_buffers(problem, preset, allocations)
    placed |= assign_private_stacks(problem, placed, allocations)
    waiting = _assign_global_buffers(problem, placed, allocations, known)
    assign_heaps(problem, waiting, pack, allocations)
    _assign_thread_local_buffers(problem, placed, allocations)
    combined = combine_temporaries(problem, allocations)
    return BufferAssignment(combined, None if problem.options.fast_merge else waiting)


# Step 1.


def _assign_global_buffers(
    problem: Problem,
    placed: set[HloBuffer],
    allocations: list[BufferAllocation],
    known: Known | None,
) -> list[HloBuffer]:
    """Assign the control-flow buffers; returns those left to the heap.

    Decisions of another order hold only if no changed buffer shares an allocation; otherwise all
    are made again.
    """
    if known is not None and not problem.options.fast_merge:
        tried = allocations[:]
        waiting = _GlobalAssigner(problem, tried).assign(placed, known)
        if waiting is not None:
            allocations[:] = tried
            return waiting
    found = _GlobalAssigner(problem, allocations).assign(placed)
    assert found is not None
    return found


class _GlobalAssigner:
    """Gives control-flow buffers their own allocations, or idle ones."""

    def __init__(self, problem: Problem, allocations: list[BufferAllocation]) -> None:
        self._problem = problem
        self._allocations = allocations
        self._shared = SharedAllocations(problem)
        self._contexts = Contexts(problem)
        module = problem.dataflow.module
        self._entry = module.entry
        self._aliased_parameters = {
            (alias.parameter_number, alias.parameter_index) for alias in module.input_output_alias
        }

    def assign(self, placed: set[HloBuffer], known: Known | None = None) -> list[HloBuffer] | None:
        """Assign the unplaced buffers; returns the heap's, or None if a changed one shares."""
        contexts, special = self._contexts.buffers, self._problem.timeless.special
        live_out = self._problem.aliasing.live_out
        waited: Container[HloBuffer] = ()
        changed: Set[HloBuffer] = frozenset()
        if known is not None:
            if contexts or any(self._may_share(buffer, known) for buffer in known.changed):
                return None
            waited, changed = known.waiting, known.changed
        waiting: list[HloBuffer] = []
        are_busy, merges_fast = self._shared.are_busy, self._problem.options.fast_merge
        for buffer in self._in_order(placed):
            if buffer in waited and buffer not in changed:
                waiting.append(buffer)
            elif buffer in contexts:
                self._assign_context(buffer)
            elif buffer in special:
                self._assign_special(buffer, special[buffer])
            elif (merges_fast or not are_busy(buffer)) and self._reuse(buffer):
                if buffer in changed:
                    return None
            elif buffer in live_out:
                self._shared.make_reusable(self._new_allocation(buffer))
            else:
                waiting.append(buffer)
        return waiting

    def _may_share(self, buffer: HloBuffer, known: Known) -> bool:
        if buffer in known.waiting:
            return False
        value = self._problem.timeless.special.get(buffer)
        if value is None:
            return True
        instruction = value.instruction
        is_entry_parameter = instruction.opcode == "parameter" and instruction.parent is self._entry
        return is_entry_parameter and self._is_aliased(value)

    def _in_order(self, placed: set[HloBuffer]) -> list[HloBuffer]:
        timeless = self._problem.timeless
        if placed or timeless.options.fast_merge:
            return self._problem.in_order(timeless.in_flow, placed)
        return timeless.flow_in_order

    def _assign_context(self, buffer: HloBuffer) -> None:
        """Put a context into a free allocation, that of another context, or a new one."""
        contexts, may_hold = self._contexts, self._shared.may_hold
        free = (found for found in contexts.free(buffer) if may_hold(found, buffer))
        shared = (
            found
            for found in contexts.large_enough(buffer)
            if may_hold(found, buffer, contexts.values)
        )
        allocation = next(chain(free, shared), None)
        if allocation is None:
            allocation = self._new_allocation(buffer)
            contexts.allocations[allocation.index] = allocation
        else:
            self._shared.add(allocation, buffer)
        contexts.note_use(allocation, buffer)

    def _assign_special(self, buffer: HloBuffer, value: HloValue) -> None:
        """Give a constant, an entry parameter or a tuple table its own allocation."""
        instruction = value.instruction
        if instruction.opcode == "constant":
            if self._problem.options.allocate_constants:
                self._new_allocation(buffer, is_constant=True)
        elif instruction.opcode == "parameter" and instruction.parent is self._entry:
            number, is_aliased = instruction.parameter_number, self._is_aliased(value)
            parameter = EntryParameter(ParameterNumber(number), value.index, is_aliased)
            allocation = self._new_allocation(buffer, parameter=parameter)
            if is_aliased:
                self._shared.make_reusable(allocation)
        else:
            self._new_allocation(buffer, is_tuple=True)

    def _is_aliased(self, value: HloValue) -> bool:
        """Whether an entry parameter's memory is donated."""
        return (value.instruction.parameter_number, value.index) in self._aliased_parameters

    def _reuse(self, buffer: HloBuffer) -> bool:
        """Put a buffer into an allocation that is idle during its live range, if any."""
        idle = self._contexts.free if self._problem.options.fast_merge else self._shared.idle
        for find in (self._shared.of_operands, idle):
            for allocation in find(buffer):
                if self._shared.may_hold(allocation, buffer):
                    self._shared.add(allocation, buffer)
                    self._contexts.note_use(allocation, buffer)
                    return True
        return False

    def _new_allocation(
        self,
        buffer: HloBuffer,
        *,
        parameter: EntryParameter | None = None,
        is_constant: bool = False,
        is_tuple: bool = False,
    ) -> BufferAllocation:
        size = self._problem.size_of[buffer]
        allocation = BufferAllocation(
            AllocationIndex(len(self._allocations)),
            size,
            self._problem.color(buffer),
            dict.fromkeys(buffer.values, whole(size)),
            is_tuple=is_tuple,
            is_constant=is_constant,
            maybe_live_out=buffer in self._problem.aliasing.live_out,
            parameter=parameter,
        )
        self._allocations.append(allocation)
        if not is_tuple and not allocation.is_readonly:
            self._shared.watch(allocation, buffer)
        return allocation


# Step 3.


def _assign_thread_local_buffers(
    problem: Problem, placed: set[HloBuffer], allocations: list[BufferAllocation]
) -> None:
    """Give values of embedded computations their own allocations, shared by all orders' plans."""
    special, size_of = problem.timeless.special, problem.size_of
    slices, color_of = problem.timeless.whole_slices, problem.color_of
    live_out, allocates_constants = problem.aliasing.live_out, problem.options.allocate_constants
    buffers = problem.timeless.thread_local_by_id
    if problem.options.sorts_thread_local_buffers:
        buffers = problem.in_order(problem.timeless.thread_local, placed)
    for buffer in buffers:
        value = special.get(buffer)
        is_constant = value is not None and value.instruction.opcode == "constant"
        if is_constant and not allocates_constants:
            continue
        allocation = BufferAllocation(
            AllocationIndex(len(allocations)),
            size_of[buffer],
            color_of[buffer.values[0]],
            slices[buffer],
            not is_constant,
            False,
            is_constant,
            buffer in live_out,
        )
        allocations.append(allocation)


# Step 4.


def combine_temporaries(
    problem: Problem, allocations: list[BufferAllocation]
) -> list[BufferAllocation]:
    """Concatenate temporaries by memory space, after all others (`CombineTempAllocations`)."""
    kept, temporaries = partition(allocations)
    combined: dict[Color, BufferAllocation] = {}
    for temporary in temporaries:
        target = combined.setdefault(temporary.color, temporary)
        if target is temporary:
            continue
        alignment = problem.alignment(temporary.color)
        base = -(-target.size // alignment) * alignment
        target.size = ByteCount(base + temporary.size)
        for value, (offset, size) in temporary.slices.items():
            target.slices[value] = OffsetSize(Offset(base + offset), size)
    stack_colors = problem.options.machine.stack_colors
    on_stacks = [a for color, a in combined.items() if color in stack_colors]
    on_stacks.sort(key=lambda allocation: allocation.size)
    others = [a for color, a in combined.items() if color not in stack_colors]
    return renumbered([*kept, *on_stacks, *others])


def renumbered(allocations: list[BufferAllocation]) -> list[BufferAllocation]:
    for index, allocation in enumerate(allocations):
        allocation.index = AllocationIndex(index)
    return allocations


def partition(
    allocations: list[BufferAllocation],
) -> tuple[list[BufferAllocation], list[BufferAllocation]]:
    """Permanent and temporary allocations, as `std::partition` swaps from front and back."""
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
