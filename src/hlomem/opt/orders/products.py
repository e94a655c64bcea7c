"""Multiplications and additions of matrix products and convolutions, libraries' included."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from hlomem.opt.orders.library_calls import Convolved, contracted, convolved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.shape import Shape

_LABELS = re.compile(r"(?P<left>\w+)_(?P<kernel>\w+)->(?P<out>\w+)")
_FEATURES = {
    "__cudnn$convBackwardInput": ("left", "f"),
    "__cudnn$convBackwardFilter": ("kernel", "o"),
}
"""By call the part of a convolution that its result is, and the label of its features."""
_EXACT = re.compile(r'operand_precision=\{highest|"operand_precision":\["HIGHEST"')
_VOLUME = len("b012f")
"""Labels of what a convolution of three dimensions gives."""
_WINDOW = re.compile(r"(\w+)=([\w\-]+)")


class Work(NamedTuple):
    """The multiplications and additions of a kernel."""

    flops: int = 0
    type: str = ""
    """Of the operands of the largest product."""
    is_exact: bool = False
    """Whether float32 is multiplied as such."""
    features: int | None = None
    """Output features of a group, if it is a convolution."""
    given: int = 0
    """Input features of a group, likewise."""
    least: int = 0
    """The least of rows, columns and terms, if it is a matrix product."""
    is_volume: bool = False
    """Whether it is a convolution of three dimensions."""
    is_by_filter: bool = False
    """Whether it is the gradient of one by its filter."""


def work_of(instruction: HloInstruction) -> Work:
    """The work of an instruction other than a fusion."""
    flops = product_flops(instruction)
    if not flops:
        return Work()
    kind = instruction.operands[0].shape.element_type.text
    is_exact = kind == "f32" and _EXACT.search(instruction.attribute_text) is not None
    shape = instruction.shape.elements[0] if instruction.shape.is_tuple else instruction.shape
    target = instruction.custom_call_target or ""
    if instruction.opcode == "convolution" or "conv" in target:
        is_by_filter = target == "__cudnn$convBackwardFilter"
        labels = _LABELS.fullmatch(instruction.attributes.get("dim_labels", ""))
        part, label = _FEATURES.get(target, ("out", "f"))
        place = -1 if labels is None else labels[part].index(label)
        groups = max(int(instruction.attributes.get("feature_group_count", "1")), 1)
        features = max(shape.dimensions[place] // groups, 1)
        is_volume = labels is not None and len(labels["out"]) == _VOLUME
        given = 0 if labels is None else _input_features(instruction, labels)
        return Work(flops, kind, is_exact, features, given, 0, is_volume, is_by_filter)
    return Work(flops, kind, is_exact, least=_least_size(flops, instruction, shape))


def _input_features(convolution: HloInstruction, labels: re.Match[str]) -> int:
    """Input features of a group, by the filter."""
    sizes = convolved(convolution)
    kernel = convolution.operands[1].shape.dimensions if sizes is None else sizes.kernel
    return kernel[labels["kernel"].index("i")]


def _least_size(flops: int, product: HloInstruction, shape: Shape) -> int:
    """The least of rows, columns and terms of a product; of many at once, of each."""
    left, right = (prod(operand.shape.dimensions) for operand in product.operands[:2])
    out = prod(shape.dimensions)
    terms = flops // (2 * out)
    if not terms or not left or not right:
        return 0
    # With b products of m x k by k x n: left = bmk, right = bkn, out = bmn.
    count = max(round(left * right / (out * terms * terms)), 1)
    return max(min(terms, left // (count * terms), right // (count * terms)), 1)


def work_in(body: HloComputation) -> Work:
    """The work of a fusion: of its largest product, with the operations of all."""
    parts = [
        work_in(part.called_computations[0]) if part.opcode == "fusion" else work_of(part)
        for part in body.instructions
    ]
    largest = max(parts, key=lambda part: part.flops, default=Work())
    return largest._replace(flops=sum(part.flops for part in parts))


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
    for label in spatial:  # the window lists them by their numbers
        count *= _places(
            left[labels["left"].index(label)],
            out[labels["out"].index(label)],
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
