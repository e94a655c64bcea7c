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

from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlomem.assign.allocation import BufferAllocation, BufferAssignment, EntryParameter, OffsetSize
from hlomem.assign.contexts import Contexts
from hlomem.assign.given import assign_preset_buffers, assign_private_stacks
from hlomem.assign.heaps import assign_heaps
from hlomem.assign.problem import state_problem
from hlomem.assign.shared import SharedAllocations
from hlomem.assign.temporaries import combine_temporaries, renumbered
from hlomem.base.quantities import (
    BEGINNING,
    MAIN_MEMORY,
    AllocationIndex,
    ByteCount,
    ParameterNumber,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.analysis.aliasing import Aliasing, HloBuffer
    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.live_range import LiveRanges
    from hlomem.analysis.values import HloValue
    from hlomem.assign.colors import ColorOf
    from hlomem.assign.preset import Preset
    from hlomem.assign.problem import Problem
    from hlomem.assign.simulator import Pack
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
    """Give every value a slice of an allocation; `pack` places the values of heaps.

    A plan merged fast that would almost fill the memory is made again, with more care
    (`RunAssignBuffersWithFallback`). Where that saves nothing, the first answer stands, except
    that preset allocations are listed first.
    """

    def assign(options: Options) -> BufferAssignment:
        problem = state_problem(dataflow, aliasing, live_ranges, color_of, options)
        return _assign_once(problem, pack, preset)

    fast = assign(options)
    capacity = options.machine.capacity
    if not options.fast_merge or capacity is None or _needed(fast) <= capacity - _KEPT_FREE:
        return fast
    careful = assign(replace(options, fast_merge=False, fast_merge_colors=frozenset()))
    if _needed(careful) < _needed(fast):
        return careful
    given_first = sorted(
        fast.allocations, key=lambda allocation: allocation.color not in preset.size_of_color
    )
    return BufferAssignment(renumbered(given_first))


_KEPT_FREE = 5 << 29  # bytes of memory that a plan merged fast must leave


def _needed(assignment: BufferAssignment) -> ByteCount:
    """Bytes of main memory."""
    sizes = [
        allocation.size for allocation in assignment.allocations if allocation.color == MAIN_MEMORY
    ]
    return ByteCount(sum(sizes))


def _assign_once(problem: Problem, pack: Pack | None, preset: Preset) -> BufferAssignment:
    """The five steps, each of which adds to one list."""
    allocations: list[BufferAllocation] = []
    placed = assign_preset_buffers(problem, preset, allocations)
    placed |= assign_private_stacks(problem, placed, allocations)
    waiting = _GlobalAssigner(problem, allocations).assign(placed)
    assign_heaps(problem, waiting, pack, allocations)
    _assign_thread_local_buffers(problem, placed, allocations)
    return BufferAssignment(combine_temporaries(problem, allocations))


# Step 1.


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

    def assign(self, placed: set[HloBuffer]) -> list[HloValue]:
        """Assign the buffers without a place; returns the values left to the heap."""
        problem = self._problem
        waiting: list[HloValue] = []
        for buffer in problem.in_order(problem.dataflow.call_graph.is_in_flow, placed):
            if buffer in self._contexts:
                self._assign_contexts()
            elif not self._assign_special(buffer) and not self._reuse(buffer):
                if buffer in problem.aliasing.live_out:
                    self._shared.make_reusable(self._new_allocation(buffer))
                else:
                    waiting += buffer.values
        return waiting

    def _assign_contexts(self) -> None:
        """Put all contexts into one place, as the first of them turns up."""
        if self._contexts.is_assigned:
            return
        largest, *others = self._contexts.by_size()
        allocation = self._new_allocation(largest)
        for buffer in others:
            self._shared.add(allocation, buffer)
        self._contexts.assign(allocation)

    def _assign_special(self, buffer: HloBuffer) -> bool:
        """Give a constant, an entry parameter or a tuple table an allocation of its own."""
        for value in buffer.values:
            opcode = value.instruction.opcode
            if opcode == "constant":
                if self._problem.options.allocate_constants:
                    self._new_allocation(buffer, is_constant=True)
                return True
            if opcode == "parameter" and value.instruction.parent is self._entry:
                self._assign_parameter(buffer, value)
                return True
        for value in buffer.values:
            if value.shape.is_tuple:
                self._new_allocation(buffer, is_tuple=True)
                return True
        return False

    def _assign_parameter(self, buffer: HloBuffer, value: HloValue) -> None:
        number = ParameterNumber(value.instruction.parameter_number)
        is_aliased = (number, value.index) in self._aliased_parameters
        parameter = EntryParameter(number, value.index, is_aliased)
        allocation = self._new_allocation(buffer, parameter=parameter)
        if is_aliased:
            self._shared.make_reusable(allocation)

    def _reuse(self, buffer: HloBuffer) -> bool:
        """Put a buffer into an allocation that is idle while it lives, if there is one."""
        for allocation in self._candidates(buffer):
            if self._shared.may_hold(allocation, buffer):
                self._shared.add(allocation, buffer)
                self._contexts.note_reuse(allocation, buffer)
                return True
        return False

    def _candidates(self, buffer: HloBuffer) -> Iterator[BufferAllocation]:
        """The operands' allocations, then every reusable one, the newest first."""
        yield from self._shared.of_operands(buffer)
        if not self._problem.options.fast_merge:
            yield from self._shared.idle(buffer)
        elif (free := self._contexts.free_allocation(buffer)) is not None:
            yield free

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
    slices = dict.fromkeys(buffer.values, OffsetSize(BEGINNING, size))
    allocation = BufferAllocation(AllocationIndex(index), size, color, slices)
    allocation.maybe_live_out = buffer in problem.aliasing.live_out
    return allocation


# Step 3.


def _assign_thread_local_buffers(
    problem: Problem, placed: set[HloBuffer], allocations: list[BufferAllocation]
) -> None:
    """Give the values of embedded computations allocations of their own."""
    for buffer in _thread_local_buffers(problem, placed):
        is_constant = any(value.instruction.opcode == "constant" for value in buffer.values)
        if is_constant and not problem.options.allocate_constants:
            continue
        allocation = _allocation_for(problem, buffer, len(allocations))
        allocation.is_constant = is_constant
        allocation.is_thread_local = not is_constant
        allocations.append(allocation)


def _thread_local_buffers(problem: Problem, placed: set[HloBuffer]) -> list[HloBuffer]:
    """The buffers of computations inside one operation, in XLA's order."""
    is_thread_local = problem.dataflow.call_graph.is_thread_local
    if problem.options.sorts_thread_local_buffers:
        return problem.in_order(is_thread_local, placed)
    wanted = {
        computation
        for computation in problem.dataflow.module.computations
        if is_thread_local(computation)
    }
    buffers = problem.aliasing.buffers  # by id
    return [buffer for buffer in buffers if buffer.values[0].instruction.parent in wanted]
