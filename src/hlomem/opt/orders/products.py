"""Multiplications and additions of matrix products and convolutions, libraries' included."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING

from hlomem.opt.orders.library_calls import Convolved, contracted, convolved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.ir import HloInstruction

_LABELS = re.compile(r"(?P<left>\w+)_(?P<kernel>\w+)->(?P<out>\w+)")
_WINDOW = re.compile(r"(\w+)=([\w\-]+)")


def product_flops(instruction: HloInstruction) -> int:
    """Multiplications and additions of a dot or a convolution; nothing for any other."""
    opcode = instruction.opcode
    if opcode == "dot":
        return _dot_flops(instruction, instruction.integers("lhs_contracting_dims"))
    if opcode == "convolution":
        left, kernel = (operand.shape.dimensions for operand in instruction.operands[:2])
        sizes = Convolved(left, kernel, instruction.shape.dimensions)
        return 2 * _products(sizes, instruction.attributes)
    if opcode == "custom-call":
        summed = contracted(instruction)
        if summed is not None:
            return _dot_flops(instruction, summed)
        found = convolved(instruction)
        if found is not None:
            return 2 * _products(found, instruction.attributes)
    return 0


def _dot_flops(product: HloInstruction, summed: tuple[int, ...]) -> int:
    left = product.operands[0].shape.dimensions
    shape = product.shape.elements[0] if product.shape.is_tuple else product.shape
    return 2 * prod(left[dimension] for dimension in summed) * prod(shape.dimensions)


def _products(sizes: Convolved, attributes: Mapping[str, str]) -> int:
    """Products that count: those of a window's places that lie on elements, not on what is between.

    As `HloCostAnalysis::HandleConvolution` counts them; TPUs write dots as convolutions whose
    windows lie outside of their operands but for one position.
    """
    labels = _LABELS.fullmatch(attributes.get("dim_labels", ""))
    left, kernel, out = sizes
    if labels is None:
        return prod(out) * prod(kernel)
    window = dict(_WINDOW.findall(attributes.get("window", "")))
    count = kernel[labels["kernel"].index("i")] * kernel[labels["kernel"].index("o")]
    count *= left[labels["left"].index("b")]
    count //= max(int(attributes.get("batch_group_count", "1")), 1)
    spatial = [label for label in labels["left"] if label.isdecimal()]
    for number, label in enumerate(spatial):
        count *= _places(
            left[labels["left"].index(label)],
            out[labels["out"].index(label)],
            _Side(window, number),
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
