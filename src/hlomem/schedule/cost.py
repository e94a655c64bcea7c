"""How long an order leaves what runs in the background unhidden: an open, rough model of time.

In: the instructions of a computation, and an order of them. Out: the time, in bytes, for which the
program waits. The model: every instruction takes as long as moving the bytes it reads and writes; a
dot or convolution as long as moving its multiplications divided by `FLOPS_PER_BYTE`. A transfer
takes `TRANSFER_FACTOR` times the bytes of its result, since the links between devices are slower
than memory by about that. It is hidden by what runs between its start and its end; what is not
hidden, the program waits for. The figures are those of current accelerators to within a factor of
two; no figure of a particular machine is claimed.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.schedule.effects import find_end, is_start, takes_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hlomem.hlo.ir import HloInstruction
    from hlomem.hlo.shape import Shape

FLOPS_PER_BYTE = 200
"""Operations a device does in the time it moves a byte of its memory."""
TRANSFER_FACTOR = 10
"""How much longer a byte takes between devices than within one."""


class _Transfer(NamedTuple):
    start: int
    end: int
    time: int


class Delays:
    """The time of transfers that an order of one computation leaves unhidden."""

    def __init__(self, nodes: Sequence[HloInstruction], size_of: Callable[[Shape], int]) -> None:
        node_of = {instruction: node for node, instruction in enumerate(nodes)}
        self._time = [_time(instruction, size_of) for instruction in nodes]
        self._transfers = [
            _Transfer(node, node_of[end], TRANSFER_FACTOR * _bytes_of(end, size_of))
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


def _time(instruction: HloInstruction, size_of: Callable[[Shape], int]) -> int:
    if not takes_time(instruction) or is_start(instruction) or instruction.opcode.endswith("-done"):
        return 0
    moved = sum(_bytes_of(part, size_of) for part in (instruction, *instruction.operands))
    return max(moved, product_flops(instruction) // FLOPS_PER_BYTE)


def _bytes_of(instruction: HloInstruction, size_of: Callable[[Shape], int]) -> int:
    return sum(size_of(leaf) for _, leaf in instruction.shape.leaves())


def product_flops(instruction: HloInstruction) -> int:
    """Multiplications and additions of a dot or a convolution; nothing for any other."""
    if instruction.opcode == "dot":
        left = instruction.operands[0].shape.dimensions
        contracted = prod(
            left[dimension] for dimension in instruction.integers("lhs_contracting_dims")
        )
        return 2 * contracted * prod(instruction.shape.dimensions)
    if instruction.opcode == "convolution":
        return 2 * prod(instruction.shape.dimensions) * _products_of_output(instruction)
    return 0


def _products_of_output(convolution: HloInstruction) -> int:
    """Products in each output: the kernel's elements, but for the features of other outputs."""
    kernel = convolution.operands[1].shape.dimensions
    labels = re.fullmatch(r"\w+_(\w+)->\w+", convolution.attributes.get("dim_labels", ""))
    outputs = kernel[labels[1].index("o")] if labels and "o" in labels[1] else 1
    return prod(kernel) // max(outputs, 1)
