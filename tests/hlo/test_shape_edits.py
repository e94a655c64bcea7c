"""Shapes with something else in them."""

from __future__ import annotations

from hlomem.hlo.shape import ElementType, Shape, tuple_shape
from hlomem.hlo.shape_edits import map_leaves, with_element_type
from hlomem.hlo.text.shape_parser import parse_shape_text


def _narrowed(shape: Shape) -> Shape:
    is_wide = shape.element_type is ElementType.F32
    return with_element_type(shape, ElementType.BF16) if is_wide else shape


def test_every_array_of_a_tuple_is_mapped_and_no_other_part() -> None:
    shape = parse_shape_text("((f32[2]{0}, token[]), b(f32[3]{0}), s32[], ())")
    mapped = map_leaves(shape, _narrowed)
    assert mapped.text == "((bf16[2]{0}, token[]), b(bf16[3]{0}), s32[], ())"


def test_a_shape_in_which_nothing_changes_is_the_same_object() -> None:
    shape = parse_shape_text("((s32[2]{0}, token[]), pred[])")
    assert map_leaves(shape, _narrowed) is shape


def test_depth_is_no_problem() -> None:
    shape = parse_shape_text("f32[]")
    for _ in range(5000):
        shape = tuple_shape([shape])
    assert map_leaves(shape, _narrowed).text.count("bf16[]") == 1


def test_the_bits_of_an_element_follow_its_type() -> None:
    packed = parse_shape_text("s4[8]{0:E(4)}")
    assert with_element_type(packed, ElementType.S2).text == "s2[8]{0:E(2)}"
    assert with_element_type(packed, ElementType.S8).text == "s8[8]{0}"
