"""Shapes as dumps print them, and texts that are none."""

from __future__ import annotations

import pytest

from hlomem.view.shapes import parse_shape_or_none


@pytest.mark.parametrize("text", ["f32[2,3]{1,0}", "(f32[], s32[4]{0})", "token[]"])
def test_a_shape_is_read(text: str) -> None:
    shape = parse_shape_or_none(text)
    assert shape is not None
    assert shape.text == text


@pytest.mark.parametrize("text", ["", "f32[", "nothing", "f32[2]{0} add(%a)"])
def test_what_is_none_is_none(text: str) -> None:
    assert parse_shape_or_none(text) is None
