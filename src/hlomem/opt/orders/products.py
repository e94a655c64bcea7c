"""Multiplications and additions of matrix products and convolutions, libraries' included."""

from __future__ import annotations

import re
from enum import Enum
from math import prod, sqrt
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.library_calls import Convolved, contracted, convolved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.shape import Shape
    from hlomem.opt.orders.speeds import Speeds

_LABELS = re.compile(r"(?P<left>\w+)_(?P<kernel>\w+)->(?P<out>\w+)")
_EXACT = re.compile(r'operand_precision=\{highest|"operand_precision":\["HIGHEST"')
_WINDOW = re.compile(r"(\w+)=([\w\-]+)")


class Part(Enum):
    """Of a convolution: what a kernel computes of the two others."""

    OUT = "out"
    IMAGE = "image"
    FILTER = "filter"


_PARTS = {"__cudnn$convBackwardInput": Part.IMAGE, "__cudnn$convBackwardFilter": Part.FILTER}


class Convolution(NamedTuple):
    """A convolution, or a gradient of one, as its speed depends on it."""

    part: Part
    features: int
    """Features of a group that it makes."""
    summed: int
    """Features of a group that it sums over."""
    groups: int
    dimensions: int
    window: int
    """Places of its window."""
    is_dilated: bool
    """Whether these are apart."""


class Matrices(NamedTuple):
    """A matrix product, or many at once, by the sizes of each."""

    number: int
    rows: int
    columns: int
    terms: int
    is_called: bool
    """Whether a library computes it."""

    @property
    def least(self) -> int:
        return max(min(self.rows, self.columns, self.terms), 1)

    @property
    def tiles(self) -> int:
        return self.number * -(-self.rows // TILE) * -(-self.columns // TILE)


TILE = 128
"""Rows and columns of a product that one block of threads computes."""


class Work(NamedTuple):
    """The multiplications and additions of a kernel."""

    flops: int = 0
    type: str = ""
    """Of the operands of the largest product."""
    is_exact: bool = False
    """Whether float32 is multiplied as such."""
    convolution: Convolution | None = None
    """Set if it is one."""
    matrices: Matrices | None = None
    """Set if it is a matrix product."""


def work_of(instruction: HloInstruction) -> Work:
    """The work of an instruction other than a fusion."""
    flops = product_flops(instruction)
    if not flops:
        return Work()
    kind = instruction.operands[0].shape.element_type.text
    is_exact = kind == "f32" and _EXACT.search(instruction.attribute_text) is not None
    shape = instruction.shape.elements[0] if instruction.shape.is_tuple else instruction.shape
    if instruction.opcode == "convolution" or "conv" in (instruction.custom_call_target or ""):
        return Work(flops, kind, is_exact, _convolution(instruction, shape))
    return Work(flops, kind, is_exact, matrices=_matrices(flops, instruction, shape))


def _convolution(instruction: HloInstruction, shape: Shape) -> Convolution:
    part = _PARTS.get(instruction.custom_call_target or "", Part.OUT)
    labels = _LABELS.fullmatch(instruction.attributes.get("dim_labels", ""))
    groups = max(int(instruction.attributes.get("feature_group_count", "1")), 1)
    sizes = convolved(instruction)
    kernel = instruction.operands[1].shape.dimensions if sizes is None else sizes.kernel
    if labels is None:
        return Convolution(part, max(shape.dimensions[-1], 1), 1, groups, 0, 1, is_dilated=False)
    inside = max(kernel[labels["kernel"].index("i")], 1)
    outside = max(kernel[labels["kernel"].index("o")] // groups, 1)
    sides = [
        size for size, label in zip(kernel, labels["kernel"], strict=True) if label.isdecimal()
    ]
    return Convolution(
        part,
        *((inside, outside) if part is Part.IMAGE else (outside, inside)),
        groups,
        len(sides),
        prod(sides),
        "rhs_dilate" in instruction.attributes.get("window", ""),
    )


def _matrices(flops: int, product: HloInstruction, shape: Shape) -> Matrices | None:
    left, right = (prod(operand.shape.dimensions) for operand in product.operands[:2])
    out = prod(shape.dimensions)
    terms = flops // (2 * out)
    if not terms or not left or not right:
        return None
    # With b products of m x k by k x n: left = bmk, right = bkn, out = bmn.
    count = max(round(left * right / (out * terms * terms)), 1)
    rows, columns = left // (count * terms), right // (count * terms)
    return Matrices(count, rows, columns, terms, product.opcode == "custom-call")


def product_time(work: Work, speeds: Speeds) -> float:
    """Seconds of the operations of a matrix product."""
    rate = speeds.exact_flops if work.is_exact else speeds.flops.get(work.type, 0.0)
    took = work.flops / (rate or speeds.flops["f32"])
    matrices = work.matrices
    if matrices is None:
        return took
    if not work.is_exact:
        took *= 1 + speeds.half_product / matrices.least
    took *= sqrt(_idle(matrices.tiles, speeds.blocks))
    return max(took, matrices.number * speeds.matrix if matrices.is_called else 0.0)


def _idle(tiles: int, blocks: int) -> float:
    """How many blocks there are for each that has a tile to compute."""
    return -(-tiles // blocks) * blocks / tiles if blocks and tiles else 1.0


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
