"""The size of a shape: bytes without padding, and in tiles.

Mirrors `ByteSizeOf`, `ByteSizeOfElements` and `ArraySize` of `xla/shape_util.cc` and
`LayoutUtil::MaxSplitSize`. `hlomem.machines.machine` adds what depends on the backend.

    f32[513,128]{1,0:T(8,128)}     513 rows in tiles of 8: 513 → 520, 3584 bytes of padding
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import NamedTuple

from hlomem.base.errors import HlomemError
from hlomem.hlo.shape import COMBINE, UNBOUNDED, Layout, Shape, default_layout

POINTER_SIZE = 8


class UnknownSizeError(HlomemError):
    """A shape with an unbounded dimension, which has no size."""


class PaddedDimension(NamedTuple):
    dimension: int | None
    """Its number in the shape; None for a dimension of the tile only."""
    size: int
    padded_size: int


def unpadded_size(shape: Shape, pointer_size: int = POINTER_SIZE) -> int:
    """Bytes of the elements, or of a tuple's table, as in a peak (`ShapeUtil::ByteSizeOf`)."""
    if shape.is_tuple:
        return pointer_size * len(shape.elements)
    if shape.is_buffer:
        return unpadded_size(shape.elements[0], pointer_size)
    if shape.is_opaque:
        return pointer_size
    return 0 if shape.is_token else size_of_elements(shape, element_count(shape))


def element_count(shape: Shape) -> int:
    """Elements of an array, with dynamic dimensions at their bound (`ShapeUtil::ElementsIn`)."""
    if UNBOUNDED in shape.dimensions:
        raise UnknownSizeError(f"shape `{shape.text}` has an unbounded dimension, so no size")
    return prod(shape.dimensions)


def size_of_elements(shape: Shape, count: int) -> int:
    """Bytes of `count` elements of an array, packed to bits if the layout has `E(n)`."""
    bits = shape.layout.element_size_in_bits if shape.layout is not None else 0
    return round_up(count * bits, 8) // 8 if bits else count * shape.element_type.byte_width


def padded_size(array: Shape) -> int:
    """Bytes of an array in its tiles, of which only the outermost pads (`ShapeUtil::ArraySize`)."""
    count = prod(dimension.padded_size for dimension in padded_dimensions(array))
    if array.layout is not None:
        count = round_up(count, array.layout.tail_padding_alignment)
    return size_of_elements(array, count)


def padded_dimensions(array: Shape) -> tuple[PaddedDimension, ...]:
    """The dimensions of an array with their sizes in memory, in the order of the shape."""
    element_count(array)
    layout = array.layout or default_layout(array.rank)
    tile = layout.tiles[0][::-1] if layout.tiles else ()
    padded = list(array.dimensions)
    for rank, dimension in enumerate(layout.minor_to_major):
        size = _largest_piece(layout, array.rank - 1 - rank, array.dimensions[dimension])
        padded[dimension] = _pad(size, tile[rank]) if rank < len(tile) else size
    known = (
        PaddedDimension(dimension, size, padded[dimension])
        for dimension, size in enumerate(array.dimensions)
    )
    added = (PaddedDimension(None, 1, _pad(1, size)) for size in tile[array.rank :])
    return (*known, *added)


def _pad(size: int, tile_size: int) -> int:
    return size if tile_size == COMBINE else round_up(size, tile_size)


def _largest_piece(layout: Layout, physical_dimension: int, size: int) -> int:
    """The longest piece between two splits of a dimension."""
    for split in layout.split_configs:
        if split.dimension == physical_dimension:
            bounds = (0, *split.split_indices, size)
            return max(high - low for low, high in pairwise(bounds))
    return size


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
