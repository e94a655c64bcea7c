"""ShapeProto ⇄ `Shape` (`xla/shape.cc`, `xla/layout.cc`); protobuf bounds the recursion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.base.errors import InputError
from hlomem.hlo.shape import (
    COMBINE,
    INT64_MAX,
    UNBOUNDED,
    ElementType,
    Layout,
    Shape,
    SplitConfig,
    default_layout,
)
from hlomem.proto.names import NUMBER_OF_TYPE, element_type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_INT64_MIN = -(2**63)
"""How a proto writes a dimension without a bound, and a tile dimension that is combined."""


def make_shape(proto: Any) -> Shape:
    element_type = element_type_of(proto.element_type)
    if element_type in (ElementType.TUPLE, ElementType.BUFFER):
        elements = tuple([make_shape(element) for element in proto.tuple_shapes])
        if element_type is ElementType.BUFFER and len(elements) != 1:
            raise InputError(f"a buffer is of {len(elements)} arrays, not of one")
        return Shape(element_type, elements=elements)
    dimensions = tuple([_dimension(size) for size in proto.dimensions])
    layout = None
    if proto.HasField("layout") and element_type.is_array:
        layout = _make_layout(proto.layout, len(dimensions))
    return Shape(element_type, dimensions, _dynamic(proto, dimensions), layout)


def fill_shape(proto: Any, shape: Shape) -> None:
    proto.element_type = NUMBER_OF_TYPE[shape.element_type]
    for element in shape.elements:
        fill_shape(proto.tuple_shapes.add(), element)
    if shape.element_type.is_array:
        proto.dimensions[:] = [
            _INT64_MIN if size == UNBOUNDED else size for size in shape.dimensions
        ]
        proto.is_dynamic_dimension[:] = shape.dynamic or [False] * len(shape.dimensions)
        _fill_layout(proto.layout, shape.layout or default_layout(len(shape.dimensions)))


def _fill_layout(proto: Any, layout: Layout) -> None:
    proto.minor_to_major[:] = layout.minor_to_major
    for tile in layout.tiles:
        sizes = [_INT64_MIN if size == COMBINE else size for size in tile]
        proto.tiles.add().dimensions[:] = sizes
    proto.tail_padding_alignment_in_elements = layout.tail_padding_alignment
    if layout.index_type is not None:
        proto.index_primitive_type = NUMBER_OF_TYPE[layout.index_type]
    if layout.pointer_type is not None:
        proto.pointer_primitive_type = NUMBER_OF_TYPE[layout.pointer_type]
    proto.element_size_in_bits = layout.element_size_in_bits
    proto.memory_space = layout.memory_space
    for split in layout.split_configs:
        made = proto.split_configs.add(dimension=split.dimension)
        made.split_indices[:] = split.split_indices
    if layout.physical_shape is not None:
        fill_shape(proto.physical_shape, layout.physical_shape)
    proto.dynamic_shape_metadata_prefix_bytes = layout.metadata_prefix_bytes


def _dimension(size: int) -> int:
    if size == _INT64_MIN:
        return UNBOUNDED
    if not 0 <= size <= INT64_MAX:
        raise InputError(f"a shape has a dimension of size {size}")
    return size


def _dynamic(proto: Any, dimensions: Sequence[int]) -> tuple[bool, ...]:
    """A flag for each dimension, true for a dynamic one; empty where none is."""
    if UNBOUNDED not in dimensions and not any(proto.is_dynamic_dimension):
        return ()
    given = [*proto.is_dynamic_dimension, *([False] * len(dimensions))]
    return tuple([size == UNBOUNDED or flag for size, flag in zip(dimensions, given, strict=False)])


def _make_layout(proto: Any, rank: int) -> Layout:
    order = tuple(proto.minor_to_major)
    if len(order) != rank or sorted(order) != list(range(rank)):
        raise InputError(f"the layout {list(order)[:8]} is no order of {rank} dimensions")
    return Layout(
        order,
        tiles=tuple([_make_tile(tile) for tile in proto.tiles]),
        tail_padding_alignment=max(proto.tail_padding_alignment_in_elements, 1),
        index_type=_sparse_type(proto.index_primitive_type),
        pointer_type=_sparse_type(proto.pointer_primitive_type),
        element_size_in_bits=proto.element_size_in_bits,
        memory_space=proto.memory_space,
        split_configs=tuple(
            SplitConfig(split.dimension, tuple(split.split_indices))
            for split in proto.split_configs
        ),
        physical_shape=make_shape(proto.physical_shape)
        if proto.HasField("physical_shape")
        else None,
        metadata_prefix_bytes=proto.dynamic_shape_metadata_prefix_bytes,
    )


def _sparse_type(number: int) -> ElementType | None:
    """The type of the indices of a sparse array; None for 0."""
    return element_type_of(number) if number else None


def _make_tile(proto: Any) -> tuple[int, ...]:
    sizes = tuple([COMBINE if size == _INT64_MIN else size for size in proto.dimensions])
    if any(size < 1 and size != COMBINE for size in sizes):
        raise InputError(f"a layout has a tile of sizes {list(sizes)[:8]}")
    return sizes
