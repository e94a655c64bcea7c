"""The time a program takes, and waits for transfers, in bytes moved within a device: a model.

An instruction takes as long as moving the bytes it reads and writes (`traffic.py`), or as its
products (`products.py`), or what else it computes (`arithmetic.py`), by the speeds of its machine
(`speeds.py`). Without speeds a product takes
its operations divided by `Machine.flops_per_byte`, within a factor of two. Loops count as often as
they are known to run, of branches the longest. A transfer is hidden by what runs between its start
and end; one between devices takes `TRANSFER_FACTOR` times its result.
"""

from __future__ import annotations

from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.library_calls import columns_decomposed, convolved
from hlomem.hlo.opcodes import RUN_IN_PLACE
from hlomem.opt.constants import HOST_FACTOR, TRANSFER_FACTOR
from hlomem.opt.once import once
from hlomem.opt.orders.arithmetic import computing_time
from hlomem.opt.orders.convolutions import convolution_time
from hlomem.opt.orders.effects import find_end, is_start, takes_time
from hlomem.opt.orders.products import Work, product_flops, product_time, work_in, work_of
from hlomem.opt.orders.speeds import speeds_of
from hlomem.opt.orders.traffic import Traffic
from hlomem.opt.orders.trips import is_counted, trip_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.shape import Shape
    from hlomem.machines.machine import Machine
    from hlomem.opt.orders.search import Orders
    from hlomem.pipeline import Stages


_KERNELS = frozenset({"bitcast", "copy", "custom-call", "dynamic-slice", "dynamic-update-slice"})
"""Opcodes that XLA lets run while others do on a GPU (`stream_attribute_async_wrapper.cc`)."""


GRAPH_LEAST = 5
"""Kernels next to each other that XLA starts as one graph (`xla_gpu_graph_min_graph_size`)."""


class _Transfer(NamedTuple):
    start: int
    end: int
    time: int


class Delays:
    """The time of transfers that an order of one computation leaves unhidden."""

    def __init__(self, nodes: Sequence[HloInstruction], machine: Machine) -> None:
        node_of = {instruction: node for node, instruction in enumerate(nodes)}
        times, traffic = Times(machine), Traffic(machine.size_of)
        host = machine.host_color
        self._time = list(map(times.of, nodes))
        self._transfers = [
            _Transfer(node, node_of[end], _transfer_time(instruction, end, times, traffic, host))
            for node, instruction in enumerate(nodes)
            if is_start(instruction) and (end := find_end(instruction)) is not None
        ]
        self.total = sum(self._time)
        """The time of the computation, if everything is hidden."""

    def of(self, order: Sequence[int]) -> int:
        """The time for which an order makes the program wait."""
        begun = [0] * len(order)
        ended = [0] * len(order)
        clock = 0
        for node in order:
            begun[node] = clock
            clock += self._time[node]
            ended[node] = clock
        return sum(
            max(0, transfer.time - (begun[transfer.end] - ended[transfer.start]))
            for transfer in self._transfers
        )


def _transfer_time(
    start: HloInstruction, end: HloInstruction, times: Times, traffic: Traffic, host: int | None
) -> int:
    """The time of what a start begins: a kernel, or a copy to the host or another device."""
    if start.opcode == "async-start" and _is_kernel(start):
        return times.of_async(start)
    spaces = {leaf.memory_space for _, leaf in start.shape.leaves()}
    if start.opcode == "copy-start" and host in spaces:
        return round(times.host_factor * traffic.bytes_of(end))
    return TRANSFER_FACTOR * traffic.bytes_of(end)


def _stands_alone(part: HloInstruction) -> bool:
    """Whether it is no part of a graph."""
    return part.opcode in ("conditional", "while") or convolved(part) is not None


def _is_kernel(start: HloInstruction) -> bool:
    """Whether what is begun is work of this device alone."""
    return all(
        part.opcode in ("fusion", "parameter") or part.opcode in _KERNELS
        for body in start.called_computations
        for part in body.instructions
    )


class Times:
    """The time of instructions if all transfers are hidden, that of bodies worked out once."""

    def __init__(self, machine: Machine) -> None:
        self._speeds = speeds_of(machine)
        self._machine = machine.name
        self._has_nested = machine.pads_tiles  # whose fusions hold others
        self._traffic = Traffic(machine.size_of, self._speeds)
        self._flops_per_byte = machine.flops_per_byte
        self._is_graph: dict[HloComputation, bool] = {}
        self._bodies: dict[HloComputation, int] = {}

    @property
    def host_factor(self) -> float:
        """How much longer a byte takes to the host, or from it, than within the device."""
        return HOST_FACTOR if self._speeds is None else self._speeds.host_factor

    def of(self, instruction: HloInstruction) -> int:
        """The time of one instruction, all that it runs included."""
        opcode = instruction.opcode
        if not takes_time(instruction) or is_start(instruction) or opcode.endswith("-done"):
            return 0
        if opcode in RUN_IN_PLACE:
            inside = time_inside(instruction, self._of_pass(instruction))
            return inside + self._decided(instruction)
        if opcode == "fusion":
            [body] = instruction.called_computations
            return max(self._of_fusion(body), self._least_in(instruction.parent))
        time = self._kernel(self._traffic.of(instruction), work_of(instruction))
        return max(time, self._by_columns(instruction), self._least_in(instruction.parent))

    def _by_columns(self, call: HloInstruction) -> int:
        """The least that a decomposition takes."""
        if self._speeds is None or call.opcode != "custom-call":
            return 0
        column = self._speeds.columns.get(call.custom_call_target or "")
        return self._speeds.in_bytes(column * columns_decomposed(call)) if column else 0

    def _least_in(self, parent: HloComputation) -> int:
        """The least that a kernel takes among those it runs with."""
        if self._speeds is None:
            return 0
        if parent not in self._is_graph:
            self._is_graph[parent] = not any(map(convolved, parent.instructions))
        lone = self._speeds.in_bytes(self._speeds.lone_launch)
        return 0 if self._is_graph[parent] else lone

    def of_async(self, start: HloInstruction) -> int:
        """The time of what a start begins, by its kernels."""
        [body] = start.called_computations
        return self._of_body(body)

    def _of_pass(self, caller: HloInstruction) -> Callable[[HloComputation], int]:
        """The time of a body that an instruction runs: in a loop the host starts its kernels."""
        speeds = self._speeds
        if speeds is None or not speeds.loop_launch or caller.opcode != "while":
            return self._of_body
        started = speeds.in_bytes(speeds.loop_launch)
        unasked = caller.called_computations[1] if is_counted(caller) else None

        def of_pass(body: HloComputation) -> int:
            return 0 if body is unasked else sum(self._of_runs(body, started))

        return of_pass

    def _of_runs(self, body: HloComputation, started: int) -> Iterator[int]:
        """The times of kernels after another: as a graph, or apart where they are few."""
        for stands_alone, run in groupby(body.instructions, _stands_alone):
            parts = list(run)
            times = [time for time in map(self.of, parts) if time]
            asynchronous = sum(is_start(part) or part.opcode.endswith("-done") for part in parts)
            is_graph = not stands_alone and len(times) + asynchronous >= GRAPH_LEAST
            yield sum(times) if is_graph else max(sum(times), started * len(times))

    def _decided(self, caller: HloInstruction) -> int:
        """The time until the host knows which branch runs, or that another pass does."""
        if self._speeds is None:
            return 0
        questions = 1 if caller.opcode == "conditional" else 0
        if caller.opcode == "while" and not is_counted(caller):
            questions = trip_count(caller) + 1
        return questions * self._speeds.in_bytes(self._speeds.round_trip)

    def _of_body(self, body: HloComputation) -> int:
        if body not in self._bodies:
            self._bodies[body] = sum(self._all(body))
        return self._bodies[body]

    def _all(self, body: HloComputation) -> Iterator[int]:
        return map(self.of, body.instructions)

    def _of_fusion(self, body: HloComputation) -> int:
        known = self._bodies.get(body)
        if known is None:
            known = self._bodies[body] = self._kernel(*self._work_of_fusion(body))
        return known

    def _work_of_fusion(self, body: HloComputation) -> tuple[int, Work, int]:
        """The bytes that a fusion moves, its products and what it computes besides.

        Once for all copies of a module.
        """

        def find() -> tuple[int, Work, int]:
            return self._traffic.of_fusion(body), work_in(body), self._computing(body)

        # A TPU's fusions have others inside, which a copy may have changed.
        return find() if self._has_nested else body.ask_once(("work", self._machine), find)

    def _computing(self, body: HloComputation) -> int:
        speeds = self._speeds
        if speeds is None or not speeds.is_measured:
            return 0
        return speeds.in_bytes(computing_time(body, self._traffic.needed(body), speeds))

    def _kernel(self, moved: int, work: Work, computing: int = 0) -> int:
        """The time of one kernel, which moves bytes, multiplies, and computes something else."""
        speeds = self._speeds
        if speeds is None:
            return max(moved, work.flops // self._flops_per_byte)
        if work.convolution is not None:
            seconds = moved / speeds.bandwidth
            took = convolution_time(work, work.convolution, seconds, speeds) + speeds.launch
            return speeds.in_bytes(took)
        moving = max(moved, computing)
        multiplying = speeds.bandwidth * product_time(work, speeds)
        took = max(multiplying, moving) + speeds.overlap * min(multiplying, moving)
        start = speeds.launch + (speeds.product_start if work.flops else 0.0)
        return round(took) + speeds.in_bytes(start)


def time_inside(caller: HloInstruction, time_of: Callable[[HloComputation], int]) -> int:
    """The time of what an instruction runs: a loop every pass, one of several branches."""
    inside = list(map(time_of, caller.called_computations))
    if caller.opcode == "conditional":
        return max(inside, default=0)
    return sum(inside) * (trip_count(caller) if caller.opcode == "while" else 1)


# Whole programs.


class ModelledTime(NamedTuple):
    """The time of a program, in bytes moved within a device."""

    work: int
    """If all transfers are hidden."""
    waits_before: int
    """For transfers, in the given order."""
    waits_after: int

    @property
    def before(self) -> int:
        return self.work + self.waits_before

    @property
    def after(self) -> int:
        return self.work + self.waits_after

    @property
    def ratio(self) -> float:
        """The time in the new order, divided by that in the given one."""
        return self.after / self.before if self.before else 1.0


def model_time(stages: Stages, orders: Orders) -> ModelledTime:
    module, machine = stages.module, stages.options.machine
    given = stages.schedule.sequence
    before = _Waits(machine, given)
    after = _Waits(machine, lambda computation: orders.get(computation) or given(computation))
    return ModelledTime(
        sum(map(Times(machine).of, module.entry.instructions)),
        before.of(module.entry),
        after.of(module.entry) if orders else before.of(module.entry),
    )


def module_time(module: HloModule, machine: Machine) -> int:
    """The time of a program in the order of its text, by the model."""
    work = sum(map(Times(machine).of, module.entry.instructions))
    return work + _Waits(machine, lambda computation: computation.instructions).of(module.entry)


class _Waits:
    """The time for which computations wait in the order they have, all that they run included."""

    def __init__(
        self, machine: Machine, order_of: Callable[[HloComputation], Sequence[HloInstruction]]
    ) -> None:
        self._machine = machine
        self._order_of = order_of
        self._known: dict[HloComputation, int] = {}

    def of(self, computation: HloComputation) -> int:
        if computation not in self._known:
            order = self._order_of(computation)
            has_transfers = any(map(is_start, order))
            own = Delays(order, self._machine).of(range(len(order))) if has_transfers else 0
            callers = [part for part in order if part.opcode in RUN_IN_PLACE]
            inside = sum(time_inside(caller, self.of) for caller in callers)
            self._known[computation] = own + inside
        return self._known[computation]


# The cost of running an instruction again: operations and bytes, by a count of our own.


_MOVING = """
    broadcast concatenate copy dynamic-slice dynamic-update-slice iota reshape slice transpose
"""
_MOVES = frozenset(_MOVING.split())
"""Opcodes that move elements and compute nothing; their bytes are counted, no operations."""


class Costs:
    """Operations and bytes of instructions, those of bodies worked out once."""

    def __init__(
        self,
        size_of: Callable[[Shape], int],
        times: Times | None = None,
        *,
        weighs_time: bool = True,
    ) -> None:
        self._size_of = size_of
        self._times = times
        self._weighs_time = weighs_time
        self._bodies: dict[HloComputation, int] = {}
        self._flops: dict[HloInstruction, int] = {}
        self._touched: dict[HloInstruction, int] = {}

    def flops(self, instruction: HloInstruction) -> int:
        """Operations of one instruction; a loop counts one pass where no number is known."""
        known = self._flops.get(instruction)
        if known is None:
            known = self._flops[instruction] = self._count(instruction)
        return known

    def _count(self, instruction: HloInstruction) -> int:
        opcode = instruction.opcode
        if opcode in _MOVES or not takes_time(instruction):
            return 0
        if opcode == "fusion" or opcode in RUN_IN_PLACE:
            inside = sum(self._flops_in(callee) for callee in instruction.called_computations)
            return inside * (trip_count(instruction) if opcode == "while" else 1)
        if products := product_flops(instruction):
            return products
        if opcode in ("reduce", "reduce-window", "scatter", "select-and-scatter"):
            return sum(_elements(operand.shape) for operand in instruction.operands)
        return _elements(instruction.shape)

    def bytes_touched(self, instruction: HloInstruction) -> int:
        if not takes_time(instruction):
            return 0
        known = self._touched.get(instruction)
        if known is None:
            known = self._touched[instruction] = sum(
                self._size_of(leaf)
                for part in (instruction, *instruction.operands)
                for _, leaf in part.shape.leaves()
            )
        return known

    def price(self, instructions: Iterable[HloInstruction]) -> int:
        """The cost of instructions: modelled time where speeds are known, else operations."""
        return sum(map(self.flops if self._times is None else self._times.of, instructions))

    def weight(self, instruction: HloInstruction) -> int:
        """The cost that values are compared by: time, or operations and bytes moved."""
        if self._times is not None and self._weighs_time:
            return self._times.of(instruction)
        return self.flops(instruction) + self.bytes_touched(instruction)

    def total(self, instructions: Iterable[HloInstruction]) -> int:
        return sum(map(self.flops, instructions))

    def _flops_in(self, body: HloComputation) -> int:
        known = self._bodies.get(body)
        if known is None:
            known = self._bodies[body] = self._total_in(body)
        return known

    def _total_in(self, body: HloComputation) -> int:
        """The same; what copies of a module share unread is counted once for all of them."""
        if body.reader is None:
            return self.total(body.instructions)
        counted = once(body.reader, "operations", dict[int, tuple[object, int]])
        known = counted.get(id(body.unread))
        if known is None:
            known = body.unread, self.total(body.instructions)
            if not any(_runs_others(one) for one in body.instructions):
                counted[id(body.unread)] = known
        return known[1]


def _runs_others(instruction: HloInstruction) -> bool:
    """Whether what an instruction costs depends on other bodies, which may be changed alone."""
    return instruction.opcode == "fusion" or instruction.opcode in RUN_IN_PLACE


def costs_of(machine: Machine, *, weighs_time: bool = True) -> Costs:
    """Costs by the speeds of a machine, where they are known."""
    times = None if speeds_of(machine) is None else Times(machine)
    return Costs(machine.size_of, times, weighs_time=weighs_time)


def _elements(shape: Shape) -> int:
    return sum(prod(leaf.dimensions) for _, leaf in shape.leaves())


def program_flops(stages: Stages) -> int:
    """Operations of a program, loops as often as they are known to run."""
    return Costs(stages.options.machine.size_of).total(stages.module.entry.instructions)
