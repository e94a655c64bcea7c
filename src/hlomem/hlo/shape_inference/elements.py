"""Element types and arrays as the rules of shape inference see them.

Mirrors `primitive_util.h` and the comparisons of `shape_util.cc` and `shape.cc: Shape::Equal`.
"""

from __future__ import annotations

from math import frexp
from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.shape import (
    ELEMENT_TYPE_BY_TEXT,
    INT64_MAX,
    UNBOUNDED,
    ElementType,
    Shape,
    default_layout,
)
from hlomem.hlo.text.literals import FLOATS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hlomem.hlo.text.attributes import ProgramShape

_FLOATS = {
    ELEMENT_TYPE_BY_TEXT[text]: (frexp(form.largest)[1], form.significand)
    for text, form in FLOATS.items()
}
"""Floating-point types, with the exponent at which they overflow and the bits of a significand."""
_COMPONENTS = {ElementType.C64: ElementType.F32, ElementType.C128: ElementType.F64}


class InferenceError(Exception):
    """Operands or attributes from which no shape follows."""


class Case(NamedTuple):
    """An instruction whose shape is asked for."""

    opcode: str
    operands: Sequence[Shape]
    values: Mapping[str, object]
    """The values of its attributes: integers, tuples of them, windows, words."""
    callees: Sequence[ProgramShape] = ()
    """The computations it calls, in the order XLA keeps them."""

    def integer(self, name: str, default: int = 0) -> int:
        """The value of an attribute that is one integer."""
        value = self.values.get(name, default)
        assert isinstance(value, int)
        return value

    def integers(self, *names: str) -> tuple[int, ...]:
        """The values of attributes that list integers, one after the other."""
        found: list[int] = []
        for name in names:
            value = self.values.get(name, ())
            assert isinstance(value, tuple)
            found += value
        return tuple(found)


def require(*conditions: bool) -> None:
    """Raise `InferenceError` unless all hold."""
    if not all(conditions):
        raise InferenceError


def require_arrays(*shapes: Shape) -> None:
    """Raise unless shapes are those of arrays (`ExpectArray`)."""
    require(*[shape.is_array for shape in shapes])


def require_distinct(numbers: Sequence[int], limit: int) -> None:
    """Raise unless dimensions are there, and none is listed twice."""
    require(len(set(numbers)) == len(numbers), *[0 <= number < limit for number in numbers])


def said(shape: Shape) -> str:
    """A shape as messages quote it."""
    return shape.text_without_layout[:80]


def is_floating(kind: ElementType) -> bool:
    """Whether a type is one of floating-point numbers."""
    return kind in _FLOATS


def is_complex(kind: ElementType) -> bool:
    """Whether a type is one of complex numbers."""
    return kind in _COMPONENTS


def is_integral(kind: ElementType) -> bool:
    """Whether a type is one of integers; `pred` is not."""
    return kind.text[0] in "su" and kind.is_array


def is_signed(kind: ElementType) -> bool:
    """Whether a type is one of signed integers or floating-point numbers (`ElementIsSigned`)."""
    return is_floating(kind) or (kind.text[0] == "s" and kind.is_array)


def component_of(kind: ElementType) -> ElementType:
    """The type of the parts of a complex number."""
    return _COMPONENTS[kind]


def same_type(one: Shape, two: Shape) -> bool:
    """Whether element types are alike but for precision (`SameElementTypeIgnoringFpPrecision`)."""
    kinds = one.element_type, two.element_type
    return kinds[0] is kinds[1] or (is_floating(kinds[0]) and is_floating(kinds[1]))


def higher_precision(one: Shape, two: Shape) -> ElementType:
    """The element type that holds more (`primitive_util::HigherPrecisionType`)."""
    return max(one.element_type, two.element_type, key=_precision)


def _precision(kind: ElementType) -> tuple[bool, int, int, int, bool]:
    component = _COMPONENTS.get(kind, kind)
    exponent, significand = _FLOATS.get(component, (-INT64_MAX, -1))
    return kind in _COMPONENTS, exponent, significand, component.bits, component.text[0] == "s"


def is_scalar(shape: Shape) -> bool:
    """Whether a shape is an array of no dimensions."""
    return shape.is_array and not shape.dimensions


def is_dynamic(shape: Shape, dimension: int) -> bool:
    """Whether a dimension is printed with `<=` or `?`."""
    return bool(shape.dynamic) and shape.dynamic[dimension]


def dynamic_flags(shape: Shape) -> list[bool]:
    """The flags of dynamic dimensions, one for each."""
    return list(shape.dynamic) or [False] * shape.rank


def sizes_fit(one: int, two: int) -> bool:
    """Whether two sizes may be one, which is so of `?` and any (`CompatibleDimensionSizes`)."""
    return one == two or UNBOUNDED in (one, two)


def same_dimensions(one: Shape, two: Shape) -> bool:
    """Whether all sizes may be the same (`SameDimensions`)."""
    return one.rank == two.rank and all(map(sizes_fit, one.dimensions, two.dimensions))


def compatible(one: Shape, two: Shape, *, precision: bool = True) -> bool:
    """Whether shapes are alike but for layouts and dynamic dimensions (`ShapeUtil::Compatible`).

    Without `precision`, floating-point types may differ (`CompatibleIgnoringFpPrecision`).
    """
    pairs = [(one, two)]
    while pairs:
        left, right = pairs.pop()
        if left is right:
            continue
        if left.is_array and right.is_array:
            same = left.element_type is right.element_type
            if not (same or (not precision and same_type(left, right))):
                return False
            if not same_dimensions(left, right):
                return False
        elif left.element_type is not right.element_type or (
            len(left.elements) != len(right.elements)
        ):
            return False
        pairs += zip(left.elements, right.elements, strict=True)
    return True


def make_shape(kind: ElementType, dimensions: Iterable[int], dynamic: Iterable[bool] = ()) -> Shape:
    """An array in the default layout (`ShapeUtil::MakeShape`)."""
    sizes, flags = tuple(dimensions), tuple(dynamic)
    size = max(1, kind.byte_width)
    for number in sizes:
        size *= 1 if number == UNBOUNDED else number
        require(number >= 0 or number == UNBOUNDED, size <= INT64_MAX)
    return Shape(kind, sizes, flags if any(flags) else (), default_layout(len(sizes)))


def retyped(shape: Shape, kind: ElementType) -> Shape:
    """The same array of other elements (`ShapeUtil::ChangeElementType`)."""
    layout = shape.layout
    if layout is not None and (kind is ElementType.PRED or kind.bits >= 8):
        layout = layout._replace(element_size_in_bits=0)
    return Shape(kind, shape.dimensions, shape.dynamic, layout)


def resized(shape: Shape, dimensions: Sequence[int], dynamic: Sequence[bool]) -> Shape:
    """The same array with other sizes, in its layout."""
    flags = tuple(dynamic) if any(dynamic) else ()
    return Shape(shape.element_type, tuple(dimensions), flags, shape.layout)
