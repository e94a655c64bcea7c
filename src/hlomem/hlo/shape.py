"""Shapes: immutable values with element types, layouts and tuples, printed as by XLA.

Mirrors `xla/shape.h`, `xla/layout.h` and the printing half of `xla/shape_util.cc`. Sizes are in
`hlo/padding.py` and `machines`. Nothing here recurses, so deep tuples are harmless.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from hlomem.base.quantities import MAIN_MEMORY, Color

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

INT64_MAX = 2**63 - 1

UNBOUNDED = -1
"""The size of a dimension printed `?` (`Shape::kUnboundedSize`)."""

COMBINE = -1
"""The size of a tile dimension printed `*` (`Tile::kCombineDimension`)."""

_INDEX_COMMENT_EVERY = 5  # `kAnnotationPrintInterval` of shape_util.cc


class ElementType(Enum):
    """An element's type and width (`primitive_util::BitWidth`); `BUFFER` is that of `b(...)`."""

    PRED = "pred", 1
    S1 = "s1", 1
    S2 = "s2", 2
    S4 = "s4", 4
    S8 = "s8", 8
    S16 = "s16", 16
    S32 = "s32", 32
    S64 = "s64", 64
    U1 = "u1", 1
    U2 = "u2", 2
    U4 = "u4", 4
    U8 = "u8", 8
    U16 = "u16", 16
    U32 = "u32", 32
    U64 = "u64", 64
    F4E2M1FN = "f4e2m1fn", 4
    F6E2M3FN = "f6e2m3fn", 6
    F6E3M2FN = "f6e3m2fn", 6
    F8E3M4 = "f8e3m4", 8
    F8E4M3 = "f8e4m3", 8
    F8E4M3B11FNUZ = "f8e4m3b11fnuz", 8
    F8E4M3FN = "f8e4m3fn", 8
    F8E4M3FNUZ = "f8e4m3fnuz", 8
    F8E5M2 = "f8e5m2", 8
    F8E5M2FNUZ = "f8e5m2fnuz", 8
    F8E8M0FNU = "f8e8m0fnu", 8
    BF16 = "bf16", 16
    F16 = "f16", 16
    F32 = "f32", 32
    F64 = "f64", 64
    C64 = "c64", 64
    C128 = "c128", 128
    TOKEN = "token", 0
    OPAQUE = "opaque", 0
    TUPLE = "tuple", 0
    BUFFER = "buffer", 0

    def __init__(self, text: str, bits: int) -> None:
        self.text = text
        self.bits = bits
        self.byte_width = (bits + 7) // 8
        """Bytes of one unpacked element (`primitive_util::ByteWidth`): `pred` and `s4` take 1."""

    @property
    def is_array(self) -> bool:
        """Whether arrays of it exist."""
        return self.bits > 0

    @property
    def is_unsigned_integer(self) -> bool:
        """Whether it is one of `u1` to `u64`."""
        return self.text[0] == "u"


ELEMENT_TYPE_BY_TEXT: Mapping[str, ElementType] = {
    element_type.text: element_type
    for element_type in ElementType
    if element_type not in (ElementType.TUPLE, ElementType.BUFFER)
}


class ShapeIndex(tuple[int, ...]):
    """The path to a part of a shape: `{}` the whole, `{1,0}` element 0 of element 1."""

    __slots__ = ()

    def __str__(self) -> str:
        return "{" + ",".join(map(str, self)) + "}"

    def child(self, number: int) -> ShapeIndex:
        """The index of one element of this part."""
        return ShapeIndex((*self, number))


ROOT_INDEX = ShapeIndex()


class SplitConfig(Struct, frozen=True):
    """A physical dimension and its split indices (`SplitConfig` of layout.h)."""

    dimension: int
    split_indices: tuple[int, ...]

    def __str__(self) -> str:
        return f"({self.dimension}:{','.join(map(str, self.split_indices))})"


class Layout(NamedTuple):
    """The order of an array's elements in memory (`xla::Layout`)."""

    minor_to_major: tuple[int, ...]
    dim_level_types: tuple[str, ...] = ()
    """`D(...)`, sparse arrays of XLA before 2025: D, C, S or H, optionally followed by + or ~."""
    tiles: tuple[tuple[int, ...], ...] = ()
    """`T(...)(...)`: the outermost tile first; a dimension may be `COMBINE`."""
    tail_padding_alignment: int = 1
    """`L(n)`: the element count is rounded up to a multiple of n."""
    index_type: ElementType | None = None
    """`#(type)`, sparse arrays."""
    pointer_type: ElementType | None = None
    """`*(type)`, sparse arrays."""
    element_size_in_bits: int = 0
    """`E(n)`; 0 means the width of the element type in whole bytes."""
    memory_space: Color = MAIN_MEMORY
    """`S(n)`, the color of a value of this shape."""
    split_configs: tuple[SplitConfig, ...] = ()
    """`SC(...)(...)`."""
    physical_shape: Shape | None = None
    """`P(...)`, sparse arrays."""
    metadata_prefix_bytes: int = 0
    """`M(n)`: bytes before the data that hold the sizes of a dynamic shape."""

    def __str__(self) -> str:
        """`Layout::Print`."""
        order = ",".join(map(str, self.minor_to_major))
        properties = "".join(
            (
                _wrap("D", ",".join(self.dim_level_types)),
                "".join(("T" * bool(self.tiles), *map(_format_tile, self.tiles))),
                _wrap("L", self.tail_padding_alignment, unless=1),
                _wrap("#", _text_of(self.index_type)),
                _wrap("*", _text_of(self.pointer_type)),
                _wrap("E", self.element_size_in_bits),
                _wrap("S", self.memory_space),
                "".join(("SC" * bool(self.split_configs), *map(str, self.split_configs))),
                _wrap("P", _text_of(self.physical_shape)),
                _wrap("M", self.metadata_prefix_bytes),
            )
        )
        return f"{{{order}:{properties}}}" if properties else f"{{{order}}}"


def _wrap(letter: str, value: object, *, unless: object = 0) -> str:
    """A property of a layout; empty if it has its default."""
    return "" if value == unless or value == "" else f"{letter}({value})"


def _text_of(part: ElementType | Shape | None) -> str:
    return "" if part is None else part.text


def _format_tile(tile: tuple[int, ...]) -> str:
    return "(" + ",".join("*" if size == COMBINE else str(size) for size in tile) + ")"


def default_layout(rank: int) -> Layout:
    """Row-major and untiled (`LayoutUtil::GetDefaultLayoutForRank`)."""
    return Layout(tuple(range(rank - 1, -1, -1)))


class ShapeParts:
    """The parts of one shape, numbered in the order of `ShapeUtil::ForEachSubshape`.

    An element of a tuple with all its parts is one slice of the list:

        ((f32[], s32[]), pred[])      0 {}   1 {0}   2 {0,0}   3 {0,1}   4 {1}
    """

    __slots__ = ("count", "element_starts", "indices", "number_of", "shapes")

    def __init__(self, shape: Shape) -> None:
        parts = list(shape.subshapes())
        self.indices = [index for index, _ in parts]
        self.shapes = [part for _, part in parts]
        self.count = len(parts)
        self.number_of: dict[tuple[int, ...], int] = {
            index: number for number, index in enumerate(self.indices)
        }
        self.element_starts = [
            *(number for number, index in enumerate(self.indices) if len(index) == 1),
            self.count,
        ]

    def element(self, number: int) -> slice:
        """The parts of one element of the tuple."""
        return slice(self.element_starts[number], self.element_starts[number + 1])


class Shape:
    """An array, tuple, buffer, token or opaque shape (`xla::Shape`); immutable.

    Equality is that of the printed text with layouts: a missing layout differs from the default.
    """

    __slots__ = (
        "_hash",
        "_parts",
        "_text",
        "_text_without_layout",
        "dimensions",
        "dynamic",
        "element_type",
        "elements",
        "is_tuple",
        "layout",
    )

    def __init__(
        self,
        element_type: ElementType,
        dimensions: tuple[int, ...] = (),
        dynamic: tuple[bool, ...] = (),
        layout: Layout | None = None,
        elements: tuple[Shape, ...] = (),
    ) -> None:
        self.element_type = element_type
        self.dimensions = dimensions
        """Sizes; upper bounds if dynamic, `UNBOUNDED` if printed `?`."""
        self.dynamic = dynamic
        """Flags of the dynamic dimensions; empty if all are static."""
        self.layout = layout
        self.elements = elements
        """The elements of a tuple; the one array of a buffer."""
        self.is_tuple = element_type is ElementType.TUPLE
        """Whether it is `(...)`, `()` included."""
        self._hash = hash((element_type.text, dimensions, dynamic, layout, elements))
        self._parts: ShapeParts | None = None
        self._text = ""
        self._text_without_layout = ""

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Shape):
            return NotImplemented
        pairs = [(self, other)]
        while pairs:
            one, two = pairs.pop()
            if one is two:
                continue
            if one._hash != two._hash or not _same_node(one, two):
                return False
            pairs.extend(zip(one.elements, two.elements, strict=True))
        return True

    def __repr__(self) -> str:
        return f"<Shape {self.text}>"

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[object, ...]:
        # As text, since hashes differ between processes and pickle would recurse.
        from hlomem.hlo.text.shape_parser import parse_shape_text  # noqa: PLC0415 - it imports this

        return parse_shape_text, (self.text,)

    @property
    def text(self) -> str:
        """The text with layouts (`ShapeUtil::HumanStringWithLayout`)."""
        if not self._text:
            self._text = _format_shape(self, with_layout=True)
        return self._text

    @property
    def text_without_layout(self) -> str:
        """The text without layouts (`ShapeUtil::HumanString`)."""
        if not self._text_without_layout:
            self._text_without_layout = _format_shape(self, with_layout=False)
        return self._text_without_layout

    @property
    def parts(self) -> ShapeParts:
        """The shape and all its parts, numbered."""
        if self._parts is None:
            self._parts = ShapeParts(self)
        return self._parts

    @property
    def is_buffer(self) -> bool:
        """Whether it is `b(...)`."""
        return self.element_type is ElementType.BUFFER

    @property
    def is_token(self) -> bool:
        return self.element_type is ElementType.TOKEN

    @property
    def is_opaque(self) -> bool:
        return self.element_type is ElementType.OPAQUE

    @property
    def is_array(self) -> bool:
        """Whether it is an array; a buffer is not (`Shape::IsArrayExcludingBuffer`)."""
        return self.element_type.bits > 0

    @property
    def rank(self) -> int:
        return len(self.dimensions)

    @property
    def memory_space(self) -> Color:
        """The color of the layout; 0 without a layout."""
        return MAIN_MEMORY if self.layout is None else self.layout.memory_space

    def with_layout(self, layout: Layout | None) -> Shape:
        """The same array under another layout, or none."""
        return Shape(self.element_type, self.dimensions, self.dynamic, layout, self.elements)

    def subshapes(self) -> Iterator[tuple[ShapeIndex, Shape]]:
        """The shape and its parts, tuples before elements (`ShapeUtil::ForEachSubshape`)."""
        pending = [(ROOT_INDEX, self)]
        while pending:
            index, shape = pending.pop()
            yield index, shape
            if shape.is_tuple:
                numbers = range(len(shape.elements) - 1, -1, -1)
                pending.extend((index.child(i), shape.elements[i]) for i in numbers)

    def leaves(self) -> Iterator[tuple[ShapeIndex, Shape]]:
        """The `subshapes` that are not tuples (`ShapeUtil::ForEachLeafShape`)."""
        return ((index, shape) for index, shape in self.subshapes() if not shape.is_tuple)

    def optional_subshape(self, index: Iterable[int]) -> Shape | None:
        """The part at an index, if any (`ShapeUtil::IndexIsValid`)."""
        shape = self
        for number in index:
            if not shape.is_tuple or not 0 <= number < len(shape.elements):
                return None
            shape = shape.elements[number]
        return shape

    def subshape(self, index: tuple[int, ...]) -> Shape:
        """The part at an index (`ShapeUtil::GetSubshape`); raises IndexError."""
        shape = self.optional_subshape(index) if index else self
        if shape is None:
            where = ShapeIndex(index)
            raise IndexError(f"shape `{self.text_without_layout}` has no part at {where}")
        return shape


def tuple_shape(elements: Iterable[Shape]) -> Shape:
    return Shape(ElementType.TUPLE, elements=tuple(elements))


def buffer_shape(array: Shape) -> Shape:
    """The buffer `b(array)`."""
    return Shape(ElementType.BUFFER, elements=(array,))


def _same_node(one: Shape, two: Shape) -> bool:
    """Whether two shapes agree, except for the shapes of elements."""
    return (
        one.element_type is two.element_type
        and one.dimensions == two.dimensions
        and one.dynamic == two.dynamic
        and one.layout == two.layout
        and len(one.elements) == len(two.elements)
    )


def _format_shape(shape: Shape, *, with_layout: bool) -> str:
    pieces: list[str] = []
    pending: list[Shape | str] = [shape]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            pieces.append(item)
        elif item.is_tuple:
            pieces.append("(")
            pending.append(")")
            for number in range(len(item.elements) - 1, -1, -1):
                pending += (item.elements[number], _separator(number))
        elif item.is_buffer:
            pieces.append("b(")
            pending += (")", *item.elements)
        elif item is shape:
            pieces.append(_format_leaf(item, with_layout=with_layout))
        else:  # parts are shared and cache their text
            pieces.append(item.text if with_layout else item.text_without_layout)
    return "".join(pieces)


def _separator(number: int) -> str:
    """The text before an element of a tuple (`PrintTupleShapes` of shape_util.cc)."""
    if number == 0:
        return ""
    return f", /*index={number}*/" if number % _INDEX_COMMENT_EVERY == 0 else ", "


def _format_leaf(shape: Shape, *, with_layout: bool) -> str:
    text = f"{shape.element_type.text}[{','.join(_format_dimensions(shape))}]"
    if not with_layout or shape.layout is None:
        return text
    layout = str(shape.layout)
    return text if layout == "{}" else text + layout  # a scalar's default layout is not printed


def _format_dimensions(shape: Shape) -> Iterator[str]:
    if not shape.dynamic:
        yield from map(str, shape.dimensions)
        return
    for size, is_dynamic in zip(shape.dimensions, shape.dynamic, strict=True):
        if size == UNBOUNDED:
            yield "?"
        else:
            yield f"<={size}" if is_dynamic else str(size)
