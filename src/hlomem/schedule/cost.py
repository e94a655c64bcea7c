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

_LABELS = re.compile(r"(?P<left>\w+)_(?P<kernel>\w+)->(?P<out>\w+)")
_WINDOW = re.compile(r"(\w+)=([\w\-]+)")
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
        self._time = [time_of(instruction, size_of) for instruction in nodes]
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


def time_of(instruction: HloInstruction, size_of: Callable[[Shape], int]) -> int:
    """The time an instruction takes, in bytes; none for transfers, which run beside the others."""
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
        return 2 * _products(instruction)
    return 0


def _products(convolution: HloInstruction) -> int:
    """Products that count: those of a window's places that lie on elements, not on what is between.

    As `HloCostAnalysis::HandleConvolution` counts them; TPUs write dots as convolutions whose
    windows lie beside their operands but for one place.
    """
    labels = _LABELS.fullmatch(convolution.attributes.get("dim_labels", ""))
    left, kernel = (operand.shape.dimensions for operand in convolution.operands[:2])
    if labels is None:
        return prod(convolution.shape.dimensions) * prod(kernel)
    window = dict(_WINDOW.findall(convolution.attributes.get("window", "")))
    count = kernel[labels["kernel"].index("i")] * kernel[labels["kernel"].index("o")]
    count *= left[labels["left"].index("b")]
    count //= max(_integer(convolution, "batch_group_count"), 1)
    spatial = [label for label in labels["left"] if label.isdecimal()]
    for number, label in enumerate(spatial):
        count *= _places(
            left[labels["left"].index(label)],
            convolution.shape.dimensions[labels["out"].index(label)],
            _Side(window, number),
        )
    return count


class _Side:
    """A window in one dimension."""

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


def _integer(instruction: HloInstruction, name: str) -> int:
    return int(instruction.attributes.get(name, "1"))
