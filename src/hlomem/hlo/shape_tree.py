"""The parts of a shape, numbered: how a tree of values is kept as a flat list.

A tuple's parts are numbered in the order `ShapeUtil::ForEachSubshape` visits them, a tuple before
its elements, so an element of a tuple with all its own parts is one slice of the list. XLA's
`ShapeTree` gives every part a node; here a get-tuple-element is a slice and a tuple is a
concatenation.

    ((f32[], s32[]), pred[])      0 {}   1 {0}   2 {0,0}   3 {0,1}   4 {1}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlomem.hlo.shape import Shape, ShapeIndex


class ShapeParts:
    """The parts of one shape in order."""

    __slots__ = ("count", "element_starts", "indices", "number_of", "shapes")

    def __init__(self, shape: Shape) -> None:
        indices: list[ShapeIndex] = []
        shapes: list[Shape] = []
        for index, subshape in shape.subshapes():
            indices.append(index)
            shapes.append(subshape)
        self.indices = indices
        self.shapes = shapes
        self.count = len(indices)
        self.number_of: dict[tuple[int, ...], int] = {
            index: number for number, index in enumerate(indices)
        }
        # Where element i of the tuple begins; one more entry says where the last one ends.
        self.element_starts = [number for number, index in enumerate(indices) if len(index) == 1]
        self.element_starts.append(self.count)

    def element(self, number: int) -> slice:
        """The parts of one element of the tuple."""
        return slice(self.element_starts[number], self.element_starts[number + 1])
