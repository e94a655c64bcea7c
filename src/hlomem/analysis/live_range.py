"""Values → live ranges, inclusive intervals [start, end] on the flattened schedule.

Mirrors `hlo/utils/hlo_live_range.cc` for a fully scheduled module. In the flattened schedule a
callee precedes the call, a loop's condition its body. A value lives from its definition to its last
use, a computation's result to the end of the computation, a parameter from its beginning. The
computation of an asynchronous operation precedes the operation that binds the last operand, and its
values live until the operation is done.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from hlomem.analysis.async_chain import async_chain, is_fully_bound_here, wrapped_computation
from hlomem.base.quantities import NEVER, Step, steps
from hlomem.hlo.opcodes import ASYNC_OPCODES, RUN_IN_PLACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hlomem.analysis.aliasing import Aliasing, HloBuffer
    from hlomem.analysis.dataflow import Dataflow
    from hlomem.analysis.values import HloPosition, HloValue
    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.schedule import Schedule
    from hlomem.machines.options import Options


class LiveRange(NamedTuple):
    """The steps at which a value is alive, both ends included."""

    start: Step
    end: Step


_make_range: Callable[[tuple[Step, Step]], LiveRange] = partial(tuple.__new__, LiveRange)
"""Faster than its constructor."""


class LiveRanges(Struct, frozen=True, eq=False):
    sequence: list[HloInstruction]
    time_of: dict[HloInstruction, Step]
    range_of: dict[HloValue, LiveRange]
    """By value id, without values of embedded computations."""
    span_of: dict[HloComputation, tuple[Step, Step]]
    """The first step of each computation, and one past its last."""
    done_time: dict[HloComputation, Step]
    """The end of the asynchronous operation that runs a computation."""

    @property
    def end(self) -> Step:
        """One past the last time (`schedule_end_time`)."""
        return Step(len(self.sequence))

    def end_position(self, value: HloValue) -> HloPosition:
        """The last position of a value, the first of equals (`ComputeValueLiveRangeEnd`)."""
        last = max(value.positions, key=lambda position: self._time_at(position.instruction))
        done = self.done_time.get(value.instruction.parent, NEVER)
        return last if self._time_at(last.instruction) > done else value.positions[0]

    def _time_at(self, instruction: HloInstruction) -> Step:
        if instruction.is_root:
            return self.span_of.get(instruction.parent, (NEVER, NEVER))[1]
        return self.time_of.get(instruction, NEVER)


def analyze_live_ranges(
    dataflow: Dataflow, aliasing: Aliasing, schedule: Schedule, options: Options
) -> LiveRanges:
    return ranges_on(FlattenedSchedule(dataflow, schedule, options), dataflow, aliasing)


def ranges_on(flattened: FlattenedSchedule, dataflow: Dataflow, aliasing: Aliasing) -> LiveRanges:
    range_of = flattened.all_ranges(dataflow.values)
    range_of.update(normalize_buffers(dict.fromkeys(aliasing.united.values()), range_of))
    return flattened.with_ranges(range_of)


def split_sequence(module: HloModule, names: Iterable[str]) -> dict[str, list[str]]:
    """A dump's flattened schedule, split by computation: instruction names in order."""
    home_of = {
        instruction.name: instruction.parent.name
        for instruction in module.iter_outer_instructions()
    }
    orders: dict[str, list[str]] = {}
    for name in names:
        orders.setdefault(home_of[name], []).append(name)
    return orders


class FlattenedSchedule:
    """The instructions of a program in execution order, and the times relevant to live ranges."""

    def __init__(self, dataflow: Dataflow, schedule: Schedule, options: Options) -> None:
        self._calls_extend_operands = options.calls_extend_operands
        self._schedule = schedule
        self._use_finder = dataflow.use_finder
        self._entry = dataflow.module.entry
        self._aliased_parameters = {
            (alias.parameter_number, alias.parameter_index)
            for alias in dataflow.module.input_output_alias
        }
        self.sequence: list[HloInstruction] = []
        self.span_of: dict[HloComputation, tuple[Step, Step]] = {}
        self._flatten(self._entry)
        self.time_of = dict(zip(self.sequence, steps(len(self.sequence)), strict=True))
        self._timed = [user for user in self.sequence if user.opcode in _MAY_RUN]
        self.done_time = self._done_times()
        self._position_time = self.time_of | {
            computation.root: end for computation, (_, end) in self.span_of.items()
        }
        self._use_time = self._use_times()
        self._last_read: dict[HloInstruction, Step] = {}
        self._read_otherwise: set[HloInstruction] = set()
        self._start_time = self.time_of
        if options.async_results_begin_late:
            self._start_time = self.time_of | {
                wrapped_computation(start).root: self.time_of[start]
                for start in self._timed
                if start.opcode == "async-start" and is_fully_bound_here(start)
            }

    def _flatten(self, computation: HloComputation) -> None:
        """Append a computation at its first call, callees first (`FlattenSchedule`)."""
        sequence, span_of = self.sequence, self.span_of
        starts: dict[HloComputation, Step] = {}
        pending: list[HloComputation | list[HloInstruction] | None] = [computation]
        open_computations: list[HloComputation] = []
        while pending:
            item = pending.pop()
            if item is None:
                done = open_computations.pop()
                span_of[done] = starts[done], Step(len(sequence))
            elif isinstance(item, list):
                sequence += item
            elif item not in starts:
                starts[item] = Step(len(sequence))
                open_computations.append(item)
                pending.append(None)
                pending += reversed(self._pieces(item))

    def _pieces(self, computation: HloComputation) -> list[HloComputation | list[HloInstruction]]:
        """A computation's instructions, split where callees precede them."""
        sequence = list(self._schedule.sequence(computation))
        cuts = [i for i, user in enumerate(sequence) if user.opcode in _MAY_RUN]
        pieces: list[HloComputation | list[HloInstruction]] = []
        for begin, end in itertools.pairwise((0, *cuts)):
            pieces.append(sequence[begin:end])
            pieces += _run_by(sequence[end])
        pieces.append(sequence[cuts[-1] if cuts else 0 :])
        return pieces

    def _done_times(self) -> dict[HloComputation, Step]:
        """The end of the asynchronous operation around each computation."""
        done_time: dict[HloComputation, Step] = {}
        for start in self._timed:
            if start.opcode == "async-start":
                time = self.time_of[async_chain(start)[-1]]
                for computation in self._run_under(start):
                    done_time[computation] = max(time, done_time.get(computation, NEVER))
        return done_time

    def _run_under(self, instruction: HloInstruction) -> Iterator[HloComputation]:
        """The control-flow computations that an instruction runs, directly or indirectly."""
        pending = list(instruction.called_computations)
        while pending:
            computation = pending.pop()
            if computation in self.span_of:
                yield computation
                for inner in self._schedule.sequence(computation):
                    pending += inner.called_computations

    def with_ranges(self, range_of: dict[HloValue, LiveRange]) -> LiveRanges:
        return LiveRanges(self.sequence, self.time_of, range_of, self.span_of, self.done_time)

    def all_ranges(self, values: Iterable[HloValue]) -> dict[HloValue, LiveRange]:
        """The live ranges of the scheduled values, regardless of aliases.

        Most values have one position and are read at the steps of their users; the last read of
        those is recorded in one pass over the schedule.
        """
        last_read = self._last_read
        for instruction, time in self.time_of.items():
            for operand in instruction.operands:
                last_read[operand] = time
        operands = {operand for user in self._timed for operand in user.operands}
        read_otherwise = self._read_otherwise = operands | self._use_finder.passed_on
        start_time, position_time, done_time = self._start_time, self._position_time, self.done_time
        range_of: dict[HloValue, LiveRange] = {}
        for value in values:
            instruction = value.instruction
            start = start_time.get(instruction)
            if start is None:
                continue
            if (
                len(value.positions) > 1
                or instruction in read_otherwise
                or instruction.opcode == "parameter"
                or instruction.parent in done_time
            ):
                range_of[value] = self.live_range(value)
                continue
            end, read = position_time[instruction], last_read.get(instruction, NEVER)
            range_of[value] = _make_range((start, max(read, end)))
        return range_of

    def live_range(self, value: HloValue) -> LiveRange:
        """The live range of a value, regardless of aliases (`CalculateBufferStartEndMap`)."""
        instruction = value.instruction
        if instruction.opcode == "parameter":
            computation = instruction.parent
            start = self.span_of[computation][0]
            if computation is self._entry and not self._is_aliased(value):
                return LiveRange(start, Step(len(self.sequence)))
        else:
            start = self._start_time[instruction]
        end = self._last_position(value)
        if end < len(self.sequence):
            end = max(end, self._last_use(value))
        return _make_range((start, end))

    def _is_aliased(self, value: HloValue) -> bool:
        return (value.instruction.parameter_number, value.index) in self._aliased_parameters

    def _last_position(self, value: HloValue) -> Step:
        """The last step of the value's positions; that of a root is the end of its computation."""
        last = self.done_time.get(value.instruction.parent, NEVER) if self.done_time else NEVER
        position_time = self._position_time
        for instruction, _ in value.positions:
            time = position_time.get(instruction, NEVER)
            if time > last:
                last = time
        return last

    def _last_use(self, value: HloValue) -> Step:
        """The last read of the value (`GetLastUsageTime`)."""
        last = NEVER
        use_time, last_read = self._use_time, self._last_read
        readers = self._use_finder.readers_at
        for instruction, index in value.positions:
            if last_read and instruction not in self._read_otherwise:
                time = last_read.get(instruction, NEVER)
                if time > last:
                    last = time
                continue
            for user in readers(instruction, index, value):
                time = use_time.get(user, NEVER)
                if time > last:
                    last = time
        return last

    def _use_times(self) -> dict[HloInstruction, Step]:
        """The step at which each instruction reads its operands; a loop, as its body begins."""
        times = self.time_of.copy()
        for instruction in self._timed:
            if instruction.opcode == "call" and not self._calls_extend_operands:
                del times[instruction]
            elif instruction.opcode == "while":
                parameter = instruction.called_computations[0].parameters[0]
                times[instruction] = self.time_of[parameter]
        return times


_MAY_RUN = RUN_IN_PLACE | ASYNC_OPCODES
"""Opcodes that may run computations, and so read or write at other steps than their own."""


def _run_by(instruction: HloInstruction) -> Sequence[HloComputation]:
    """The computations flattened before an instruction; a loop's condition before its body."""
    if instruction.opcode in ASYNC_OPCODES:
        return [wrapped_computation(instruction)] if is_fully_bound_here(instruction) else []
    callees = instruction.called_computations
    return callees[::-1] if instruction.opcode == "while" else callees


def normalize_buffers(
    buffers: Iterable[HloBuffer], range_of: dict[HloValue, LiveRange]
) -> Iterable[tuple[HloValue, LiveRange]]:
    """Live ranges of values that share a buffer, clipped to follow one another.

    `HloLiveRange::NormalizeAliasedBuffers`: each ends where the next begins, and none ends before
    an earlier one.
    """
    for buffer in buffers:
        values = [value for value in buffer.values if value in range_of]
        if len(values) < 2:
            continue
        values.sort(key=lambda value: (*range_of[value], value.id))
        start, end = range_of[values[0]]
        for previous, value in itertools.pairwise(values):
            next_start, next_end = range_of[value]
            yield previous, LiveRange(start, min(end, next_start))
            start, end = next_start, max(end, next_end)
        yield values[-1], LiveRange(start, end)
