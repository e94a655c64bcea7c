"""Changed shapes, for edits of a whole module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.shape import ElementType, Shape

if TYPE_CHECKING:
    from collections.abc import Callable


_NARROWEST_UNPACKED = 8


def map_leaves(shape: Shape, change: Callable[[Shape], Shape]) -> Shape:
    """A shape with each of its arrays replaced, or itself if none changes."""
    new: dict[Shape, Shape] = {}
    pending = [shape]
    while pending:
        part = pending[-1]
        missing = [element for element in part.elements if element not in new]
        if missing:
            pending += missing
            continue
        pending.pop()
        elements = tuple([new[element] for element in part.elements])
        if part.is_array:
            new[part] = change(part)
        elif elements == part.elements:
            new[part] = part
        else:
            kept = part.element_type, part.dimensions, part.dynamic, part.layout
            new[part] = Shape(*kept, elements)
    return new[shape]


def with_element_type(shape: Shape, new: ElementType) -> Shape:
    layout = shape.layout
    if layout is not None and layout.element_size_in_bits:
        bits = new.bits if new.bits < _NARROWEST_UNPACKED else 0
        layout = layout._replace(element_size_in_bits=bits)
    return Shape(new, shape.dimensions, shape.dynamic, layout)
