"""Buffers → allocations: the decisions, in XLA's order.

In: the analyses and the options. Out: every allocation with the slices of its values. Mirrors
`BufferAssigner` of `service/buffer_assignment.cc`:

0. buffers that an earlier pass has placed go where it said, one allocation per memory space
   (`hlomem.assign.given`),
1. buffers of the program's own flow, large ones first: constants, parameters and tuple tables get
   allocations of their own; results reuse one that is idle or get a new one; temporaries reuse one
   that is idle or wait (here, with `shared` and `contexts`),
2. waiting temporaries are packed into one heap per memory space (`heaps`),
3. values inside reductions and the like get thread-local allocations (here),
4. temporaries are laid end to end in one allocation per memory space
   (`temporaries`).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.assign.allocation import BufferAllocation, BufferAssignment, EntryParameter, whole
from hlomem.assign.contexts import Contexts
from hlomem.assign.given import assign_preset_buffers, assign_private_stacks
from hlomem.assign.heaps import assign_heaps
from hlomem.assign.problem import with_order
from hlomem.assign.shared import SharedAllocations
from hlomem.assign.temporaries import combine_temporaries, renumbered
from hlomem.base.named_tuples import NamedTuple
from hlomem.base.quantities import (
    MAIN_MEMORY,
    AllocationIndex,
    ByteCount,
    Color,
    ParameterNumber,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Set

    from hlomem.analysis.aliasing import HloBuffer
    from hlomem.analysis.live_range import LiveRanges
    from hlomem.analysis.values import HloValue
    from hlomem.assign.preset import Preset
    from hlomem.assign.problem import Problem, Timeless
    from hlomem.assign.simulator import Pack


class Known(NamedTuple):
    """The decisions of a plan of the same program in another order, as far as they hold."""

    waiting: Container[HloBuffer]
    """The buffers that were left to heaps."""
    changed: Set[HloBuffer]
    """Those whose lives lie otherwise among the others', so that nothing is known of them."""


def assign_buffers(
    timeless: Timeless,
    live_ranges: LiveRanges,
    pack: Pack | None,
    preset: Preset,
    known: Known | None = None,
) -> BufferAssignment:
    """Give every value a slice of an allocation; `pack` places the values of heaps.

    A plan merged fast that would almost fill the memory is made again, with more care
    (`RunAssignBuffersWithFallback`). Where that saves nothing, the first answer stands, except
    that preset allocations are listed first.
    """

    options = timeless.options
    fast = _assign_once(with_order(timeless, live_ranges), pack, preset, known)
    capacity = options.machine.capacity
    if not options.fast_merge or capacity is None or _allocated(fast) <= capacity - _KEPT_FREE:
        return fast
    slow = replace(options, fast_merge=False, fast_merge_colors=frozenset[Color]())
    again = replace(timeless, options=slow)
    careful = _assign_once(with_order(again, live_ranges), pack, preset)
    if _allocated(careful) < _allocated(fast):
        return careful
    given_first = sorted(
        fast.allocations, key=lambda allocation: allocation.color not in preset.size_of_color
    )
    return BufferAssignment(renumbered(given_first))


_KEPT_FREE = 5 << 29  # bytes of memory that a plan merged fast must leave


def _allocated(assignment: BufferAssignment) -> ByteCount:
    """Bytes of main memory as XLA counts them here: with threads' stacks, unlike `footprint`."""
    sizes = [
        allocation.size for allocation in assignment.allocations if allocation.color == MAIN_MEMORY
    ]
    return ByteCount(sum(sizes))


def _assign_once(
    problem: Problem, pack: Pack | None, preset: Preset, known: Known | None = None
) -> BufferAssignment:
    """The five steps, each of which adds to one list."""
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
    """Assign the buffers of the program's own flow; returns those left to the heap.

    What is known of another order holds as long as all that takes turns in an allocation lives as
    it did there, relative to the rest; else nothing does, and all is asked for anew.
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
    """Gives buffers of the program's own flow allocations of their own, or idle ones."""

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
        """Assign the buffers without a place; returns those left to the heap.

        None as soon as a buffer whose life has changed takes turns with others.
        """
        contexts, special = self._contexts.buffers, self._problem.timeless.special
        live_out = self._problem.aliasing.live_out
        waited: Container[HloBuffer] = ()
        changed: Set[HloBuffer] = frozenset()
        if known is not None:
            if contexts or any(self._takes_turns(buffer, known) for buffer in known.changed):
                return None
            waited, changed = known
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

    def _takes_turns(self, buffer: HloBuffer, known: Known) -> bool:
        """Whether a buffer lay where others may, too, in the order that is known."""
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
        """Put a context into a place that is free, or that of others, or alone."""
        contexts, may_hold = self._contexts, self._shared.may_hold
        free = (place for place in contexts.free(buffer) if may_hold(place, buffer))
        shared = (
            place
            for place in contexts.large_enough(buffer)
            if may_hold(place, buffer, contexts.values)
        )
        allocation = next(chain(free, shared), None)
        if allocation is None:
            allocation = self._new_allocation(buffer)
            contexts.add_place(allocation)
        else:
            self._shared.add(allocation, buffer)
        contexts.note_use(allocation, buffer)

    def _assign_special(self, buffer: HloBuffer, value: HloValue) -> None:
        """Give a constant, an entry parameter or a tuple table an allocation of its own."""
        opcode = value.instruction.opcode
        if opcode == "constant":
            if self._problem.options.allocate_constants:
                self._new_allocation(buffer, is_constant=True)
        elif opcode == "parameter" and value.instruction.parent is self._entry:
            self._assign_parameter(buffer, value)
        else:
            self._new_allocation(buffer, is_tuple=True)

    def _assign_parameter(self, buffer: HloBuffer, value: HloValue) -> None:
        number = ParameterNumber(value.instruction.parameter_number)
        is_aliased = self._is_aliased(value)
        parameter = EntryParameter(number, value.index, is_aliased)
        allocation = self._new_allocation(buffer, parameter=parameter)
        if is_aliased:
            self._shared.make_reusable(allocation)

    def _is_aliased(self, value: HloValue) -> bool:
        """Whether the caller gives an entry parameter's memory away."""
        return (value.instruction.parameter_number, value.index) in self._aliased_parameters

    def _reuse(self, buffer: HloBuffer) -> bool:
        """Put a buffer into an allocation that is idle while it lives, if there is one."""
        for find in (self._shared.of_operands, self._idle):
            for allocation in find(buffer):
                if self._shared.may_hold(allocation, buffer):
                    self._shared.add(allocation, buffer)
                    self._contexts.note_use(allocation, buffer)
                    return True
        return False

    def _idle(self, buffer: HloBuffer) -> Iterable[BufferAllocation]:
        """Every reusable allocation that is idle while a buffer lives, the newest first."""
        if not self._problem.options.fast_merge:
            return self._shared.idle(buffer)
        return self._contexts.free(buffer)

    def _new_allocation(
        self,
        buffer: HloBuffer,
        *,
        parameter: EntryParameter | None = None,
        is_constant: bool = False,
        is_tuple: bool = False,
    ) -> BufferAllocation:
        allocation = _allocation_for(self._problem, buffer, len(self._allocations))
        allocation.parameter = parameter
        allocation.is_constant = is_constant
        allocation.is_tuple = is_tuple
        self._allocations.append(allocation)
        if allocation.is_reusable and not allocation.is_readonly:
            self._shared.watch(allocation, buffer)
        return allocation


def _allocation_for(problem: Problem, buffer: HloBuffer, index: int) -> BufferAllocation:
    """An allocation with one buffer in it."""
    size, color = problem.size_of[buffer], problem.color_of[buffer.values[0]]
    slices = dict.fromkeys(buffer.values, whole(size))
    allocation = BufferAllocation(AllocationIndex(index), size, color, slices)
    if buffer in problem.aliasing.live_out:
        allocation.maybe_live_out = True
    return allocation


# Step 3.


def _assign_thread_local_buffers(
    problem: Problem, placed: set[HloBuffer], allocations: list[BufferAllocation]
) -> None:
    """Give the values of embedded computations allocations of their own.

    Nothing is ever added to these, so that plans in several orders have the same slices.
    """
    special, size_of = problem.timeless.special, problem.size_of
    slices, color_of = problem.timeless.whole_slices, problem.color_of
    live_out, allocates_constants = problem.aliasing.live_out, problem.options.allocate_constants
    for buffer in _thread_local_buffers(problem, placed):
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


def _thread_local_buffers(problem: Problem, placed: set[HloBuffer]) -> list[HloBuffer]:
    """The buffers of computations inside one operation, in XLA's order."""
    if problem.options.sorts_thread_local_buffers:
        return problem.in_order(problem.timeless.thread_local, placed)
    return problem.timeless.thread_local_by_id
