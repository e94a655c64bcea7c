"""The time a program takes, and waits for transfers, in bytes moved within a device: a rough model.

An instruction takes as long as moving the bytes it reads and writes, of parts of buffers the parts;
a dot or convolution its operations divided by `Machine.flops_per_byte`, if that is more. Loops
count as often as they are known to run, of branches the longest. A transfer takes `TRANSFER_FACTOR`
times its result and is hidden by what runs between its start and end. The figures are those of
current accelerators and CPU cores to within a factor of two.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.opcodes import RUN_IN_PLACE
from hlomem.opt.constants import TRANSFER_FACTOR
from hlomem.opt.orders.effects import find_end, is_start, takes_time
from hlomem.opt.orders.trips import trip_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.hlo.shape import Shape
    from hlomem.machines.machine import Machine
    from hlomem.opt.orders.search import Orders
    from hlomem.pipeline import Stages


_READS_PART = frozenset({"dynamic-slice", "gather", "slice"})
"""Opcodes that read of their first operand what they return."""
_WRITES_PART = frozenset({"dynamic-update-slice", "scatter"})
"""Opcodes that write into the memory of their first operand."""
_LABELS = re.compile(r"(?P<left>\w+)_(?P<kernel>\w+)->(?P<out>\w+)")
_WINDOW = re.compile(r"(\w+)=([\w\-]+)")


class _Transfer(NamedTuple):
    start: int
    end: int
    time: int


class Delays:
    """The time of transfers that an order of one computation leaves unhidden."""

    def __init__(self, nodes: Sequence[HloInstruction], machine: Machine) -> None:
        node_of = {instruction: node for node, instruction in enumerate(nodes)}
        self._time = list(map(Times(machine).of, nodes))
        self._transfers = [
            _Transfer(node, node_of[end], TRANSFER_FACTOR * _bytes_of(end, machine.size_of))
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


class Times:
    """The time of instructions if all transfers are hidden, that of bodies worked out once."""

    def __init__(self, machine: Machine) -> None:
        self._size_of = machine.size_of
        self._flops_per_byte = machine.flops_per_byte
        self._bodies: dict[HloComputation, int] = {}

    def of(self, instruction: HloInstruction) -> int:
        """The time of one instruction, all that it runs included."""
        opcode = instruction.opcode
        if not takes_time(instruction) or is_start(instruction) or opcode.endswith("-done"):
            return 0
        if opcode in RUN_IN_PLACE:
            return time_inside(instruction, self._of_body)
        if opcode == "fusion":
            [body] = instruction.called_computations
            return self._of_fusion(body)
        return max(self._moved(instruction), product_flops(instruction) // self._flops_per_byte)

    def _of_body(self, body: HloComputation) -> int:
        if body not in self._bodies:
            self._bodies[body] = sum(map(self.of, body.instructions))
        return self._bodies[body]

    def _of_fusion(self, body: HloComputation) -> int:
        if body not in self._bodies:
            moved = sum(map(self._read, body.parameters)) + self._written(body.root)
            products = _products_in(body) // self._flops_per_byte
            self._bodies[body] = max(moved, products)
        return self._bodies[body]

    def _moved(self, instruction: HloInstruction) -> int:
        """Bytes that an instruction reads and writes."""
        first, *rest = instruction.operands or (None,)
        others = sum(map(self._bytes, rest))
        if instruction.opcode in _READS_PART:
            return 2 * self._bytes(instruction) + others
        if instruction.opcode in _WRITES_PART:
            return others + self._part(instruction)
        own = self._bytes(instruction) + others
        return own if first is None else own + self._bytes(first)

    def _read(self, value: HloInstruction) -> int:
        whole, parts = self._bytes(value), 0
        for user in value.users:
            is_first = user.operands[0] is value and value not in user.operands[1:]
            if user.opcode == "bitcast":
                parts += self._read(user)
            elif is_first and user.opcode in _READS_PART:
                parts += self._bytes(user)
            elif not (is_first and user.opcode in _WRITES_PART):
                return whole
        return min(whole, parts)

    def _written(self, root: HloInstruction) -> int:
        if root.opcode == "tuple":
            return sum(map(self._written, root.operands))
        if root.opcode == "bitcast":
            return self._written(root.operands[0])
        return self._part(root) if root.opcode in _WRITES_PART else self._bytes(root)

    def _part(self, writer: HloInstruction) -> int:
        """Bytes of what is written into another value: one operand, or as many as there are."""
        if writer.opcode == "scatter":
            count = (len(writer.operands) - 1) // 2
            return sum(map(self._bytes, writer.operands[count + 1 :]))
        return self._bytes(writer.operands[1])

    def _bytes(self, instruction: HloInstruction) -> int:
        return _bytes_of(instruction, self._size_of)


def time_inside(caller: HloInstruction, time_of: Callable[[HloComputation], int]) -> int:
    """The time of what an instruction runs: a loop every pass, one of several branches."""
    inside = list(map(time_of, caller.called_computations))
    if caller.opcode == "conditional":
        return max(inside, default=0)
    return sum(inside) * (trip_count(caller) if caller.opcode == "while" else 1)


def _bytes_of(instruction: HloInstruction, size_of: Callable[[Shape], int]) -> int:
    return sum(size_of(leaf) for _, leaf in instruction.shape.leaves())


def _products_in(body: HloComputation) -> int:
    return sum(
        product_flops(instruction)
        if instruction.opcode != "fusion"
        else sum(map(_products_in, instruction.called_computations))
        for instruction in body.instructions
    )


def product_flops(instruction: HloInstruction) -> int:
    """Multiplications and additions of a dot or a convolution; nothing for any other."""
    if instruction.opcode == "dot":
        left = instruction.operands[0].shape.dimensions
        dimensions = instruction.integers("lhs_contracting_dims")
        contracted = prod(left[dimension] for dimension in dimensions)
        return 2 * contracted * prod(instruction.shape.dimensions)
    if instruction.opcode == "convolution":
        return 2 * _products(instruction)
    return 0


def _products(convolution: HloInstruction) -> int:
    """Products that count: those of a window's places that lie on elements, not on what is between.

    As `HloCostAnalysis::HandleConvolution` counts them; TPUs write dots as convolutions whose
    windows lie outside of their operands but for one position.
    """
    labels = _LABELS.fullmatch(convolution.attributes.get("dim_labels", ""))
    left, kernel = (operand.shape.dimensions for operand in convolution.operands[:2])
    if labels is None:
        return prod(convolution.shape.dimensions) * prod(kernel)
    window = dict(_WINDOW.findall(convolution.attributes.get("window", "")))
    count = kernel[labels["kernel"].index("i")] * kernel[labels["kernel"].index("o")]
    count *= left[labels["left"].index("b")]
    count //= max(int(convolution.attributes.get("batch_group_count", "1")), 1)
    spatial = [label for label in labels["left"] if label.isdecimal()]
    for label in spatial:  # the window lists them by their numbers
        count *= _places(
            left[labels["left"].index(label)],
            convolution.shape.dimensions[labels["out"].index(label)],
            _Side(window, int(label)),
        )
    return count


class _Side:
    def __init__(self, window: dict[str, str], number: int) -> None:
        def part(name: str, default: str) -> str:
            return window[name].split("x")[number] if name in window else default

        self.size = int(part("size", "1"))
        self.stride = int(part("stride", "1"))
        self.pad = int(part("pad", "0_0").partition("_")[0])
        self.spread = int(part("rhs_dilate", "1"))
        self.holes = int(part("lhs_dilate", "1"))


def _places(size: int, out: int, side: _Side) -> int:
    """Pairs of a place of the window and one of the output that meet an element."""
    end = (size - 1) * side.holes + 1
    return sum(
        1
        for place in range(side.size)
        for start in range(
            place * side.spread - side.pad,
            place * side.spread - side.pad + out * side.stride,
            side.stride,
        )
        if 0 <= start < end and start % side.holes == 0
    )


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

    def __init__(self, size_of: Callable[[Shape], int]) -> None:
        self._size_of = size_of
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

    def total(self, instructions: Iterable[HloInstruction]) -> int:
        return sum(map(self.flops, instructions))

    def _flops_in(self, body: HloComputation) -> int:
        known = self._bodies.get(body)
        if known is None:
            known = self._bodies[body] = self.total(body.instructions)
        return known


def _elements(shape: Shape) -> int:
    return sum(prod(leaf.dimensions) for _, leaf in shape.leaves())


def program_flops(stages: Stages) -> int:
    """Operations of a program, loops as often as they are known to run."""
    return Costs(stages.options.machine.size_of).total(stages.module.entry.instructions)
