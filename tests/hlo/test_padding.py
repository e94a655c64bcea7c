"""Bytes of shapes by their text; expected sizes are what XLA's dumps print beside the shape."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.base.quantities import Color
from hlomem.hlo.padding import (
    PaddedDimension,
    UnknownSizeError,
    element_count,
    padded_dimensions,
    padded_size,
    unpadded_size,
)
from hlomem.hlo.shape import ElementType, Layout, Shape
from hlomem.hlo.text.shape_parser import parse_shape_text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        # jaxlib 0.12.0.1, CPU, value lines of a module holding each type.
        ("c128[9]{0}", 144),
        ("f8e4m3fn[9]{0}", 9),
        ("f6e2m3fn[9]{0}", 9),
        ("pred[9]{0}", 9),
        ("s4[9]{0:E(4)}", 5),
        ("f4e2m1fn[9]{0:E(4)}", 5),
        ("u2[9]{0:E(2)}", 3),
        ("token[]", 0),
        ("((f32[3]{0}, s32[]), token[])", 16),
        ("(f32[3]{0})", 8),
        ("opaque[]", 8),
        ("b(f32[3]{0})", 12),
        # libtpu dumps, peak list: plain bytes, whatever the tile.
        ("f32[]{:T(128)}", 4),
    ],
)
def test_unpadded_size(text: str, size: int) -> None:
    assert unpadded_size(parse_shape_text(text)) == size


def test_a_dimension_is_padded_to_its_tile() -> None:
    array = parse_shape_text("f32[513,128]{1,0:T(8,128)}")
    dimensions = (PaddedDimension(0, 513, 520), PaddedDimension(1, 128, 128))
    assert padded_dimensions(array) == dimensions
    assert (unpadded_size(array), padded_size(array)) == (513 * 512, 520 * 512)


def test_the_tile_lies_on_the_minor_dimensions_of_the_layout() -> None:
    found = padded_dimensions(parse_shape_text("f32[3,5,7]{0,2,1:T(8,128)}"))
    assert [part.padded_size for part in found] == [128, 5, 8]


def test_a_tile_with_more_dimensions_than_the_shape_pads_the_missing_ones() -> None:
    array = parse_shape_text("f32[]{:T(128)}")
    assert padded_dimensions(array) == (PaddedDimension(None, 1, 128),)
    assert padded_size(array) == 512


def test_splits_count_the_largest_piece() -> None:
    assert padded_size(parse_shape_text("f32[10,4]{1,0:SC(0:3,5)}")) == 5 * 4 * 4


def test_an_unbounded_dimension_has_no_size() -> None:
    with pytest.raises(UnknownSizeError, match="unbounded dimension"):
        padded_size(parse_shape_text("f32[?,2]"))


@given(
    st.sampled_from([ElementType.F32, ElementType.BF16, ElementType.PRED]),
    st.lists(st.integers(0, 300), max_size=4).map(tuple),
    st.lists(st.sampled_from([1, 2, 8, 128]), max_size=2).map(tuple),
    st.integers(0, 8),
)
@settings(max_examples=200, deadline=None)
def test_padding_only_adds_and_inner_tiles_and_spaces_change_nothing(
    element_type: ElementType, dimensions: tuple[int, ...], tile: tuple[int, ...], space: int
) -> None:
    tiles = (tile,) if tile else ()
    order = tuple(range(len(dimensions)))
    array = Shape(element_type, dimensions, layout=Layout(order, tiles=tiles))
    other = Layout(order, tiles=(*tiles, (2, 1)) if tiles else (), memory_space=Color(space))
    assert padded_size(array) >= unpadded_size(array)
    assert all(part.padded_size >= part.size for part in padded_dimensions(array))
    assert padded_size(array.with_layout(other)) == padded_size(array)
    if not tile:
        assert padded_size(array) == element_count(array) * element_type.byte_width
