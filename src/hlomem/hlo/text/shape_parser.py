"""The text of shapes, layouts and shape indices in; values of `hlomem.hlo.shape` out.

Mirrors `ParseShape`, `ParseLayout` and `ParseShapeIndex` of `xla/hlo/parser/hlo_parser.cc` and
the checks of `LayoutUtil::ValidateLayoutForShape`. A module has a few hundred distinct shapes, so
each text is parsed once: `ShapeTable` is a dict that parses what it does not hold.

    shape      ::= array | "(" (shape ("," shape)*)? ")" | "b(" array ")"
    array      ::= element_type "[" (dimension ("," dimension)*)? "]" layout?
    dimension  ::= "?" | "<="? integer
    layout     ::= "{" integers (":" property*)? "}"   properties in the order of `Layout`

Blanks and comments may stand between any two of these, as in XLA's lexer. Differences: numbers
above int64 are errors (XLA lets uint64 wrap), and so are layouts that XLA refuses only later.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn, TypeVar

from hlomem.base.errors import ParseError
from hlomem.base.patterns import lazy_pattern, repeated
from hlomem.base.quantities import Color
from hlomem.base.source import Source, Span
from hlomem.hlo.shape import (
    COMBINE,
    ELEMENT_TYPE_BY_TEXT,
    INT64_MAX,
    UNBOUNDED,
    ElementType,
    Layout,
    Shape,
    SplitConfig,
    buffer_shape,
    tuple_shape,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

T = TypeVar("T")

MAX_DEPTH = 8192  # `HloParserOptions::kDefaultMaxRecursionDepth`
TABLE_LIMIT = 65536
_INT64_DIGITS = 19

_BLANK = lazy_pattern(repeated(r"[ \t\r\n]|/\*(?s:.*?)\*/|//[^\r\n]*"))
_WORD = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_.\-]*+")
_INTEGER = lazy_pattern(r"-?[0-9]++")
_DIM_LEVEL_TYPE = lazy_pattern(r"[DCSH]\+?~?")
_LAYOUT_AHEAD = lazy_pattern(r"[0-9:\-]")
# An array written without blanks, and followed by something that cannot be its layout.
_PLAIN_ARRAY = lazy_pattern(
    r"[a-z][a-z0-9]*+\[[^\[\]{}()/\s]*+\](?:\{[0-9:][^{}/\s]*+\})?(?=[,)]|\Z| [^{/\s])"
)

_WHOLE_ARRAY = lazy_pattern(
    rf"([a-z][a-z0-9]*+)\[((?:[0-9]{{1,18}}{repeated(r',[0-9]{1,18}')})?)\]"
    r"(\{[0-9:][^{}/\s]*+\})?"
)
INDEX_COMMENT = lazy_pattern(r"/\*index=[0-9]++\*/")


class ShapeTable(dict[str, Shape]):
    """Shapes by their text; a text not seen before is parsed. A hit is one dict lookup."""

    __slots__ = ("_layouts",)

    def __init__(self) -> None:
        super().__init__()
        self._layouts: dict[str, Layout] = {}

    def __missing__(self, text: str) -> Shape:
        shape = self._plain_tuple(text) if text[:1] == "(" else self._plain_array(text)
        shape = shape or self._parse(text)
        if len(self) >= TABLE_LIMIT:  # a server may see any number of modules
            self.clear()
        self[text] = shape
        return shape

    def _parse(self, text: str) -> Shape:
        source = Source("<shape>", text)
        shape, end = parse_shape(source, 0, self)
        end = _Cursor(source, end).skip_blanks()
        if end != len(text):
            raise ParseError(source, Span(end, len(text)), "unexpected text after a shape")
        return shape

    def _plain_tuple(self, text: str) -> Shape | None:
        """A tuple of arrays as XLA prints it; None for every other text."""
        inner = INDEX_COMMENT.sub("", text[1:-1]) if "/" in text else text[1:-1]
        arrays = [self.get(part) or self._plain_array(part) for part in inner.split(", ")]
        if text[-1] != ")":
            return None
        elements = tuple([array for array in arrays if array is not None and not array.elements])
        return tuple_shape(elements) if len(elements) == len(arrays) else None

    def _plain_array(self, text: str) -> Shape | None:
        """An array with nothing dynamic or split, as XLA prints it; None for every other text."""
        match = _WHOLE_ARRAY.fullmatch(text)
        if match is None:
            return None
        type_text, sizes, layout_text = match.groups()
        element_type = ELEMENT_TYPE_BY_TEXT.get(type_text)
        dimensions = tuple(map(int, sizes.split(","))) if sizes else ()
        layout = self._layout(layout_text, dimensions) if layout_text else None
        if element_type is None or (layout_text and layout is None):
            return None
        if not element_type.is_array or _is_too_large(element_type.byte_width, dimensions):
            return None
        shape = self[text] = Shape(element_type, dimensions, (), layout)
        return shape

    def _layout(self, text: str, dimensions: tuple[int, ...]) -> Layout | None:
        """A layout that fits an array; None if it does not, as its error has no location yet."""
        layout = self._layouts.get(text)
        if layout is None:
            cursor = _Cursor(Source("<layout>", text), 0)
            try:
                layout = _parse_optional_layout(cursor, dimensions, in_physical_shape=False)
            except ParseError:
                return None
            if layout is not None and not layout.split_configs:  # splits depend on dimensions
                self._layouts[text] = layout
        fits = layout is not None and len(layout.minor_to_major) == len(dimensions)
        return layout if fits else None


_TABLE = ShapeTable()


def parse_shape_text(text: str) -> Shape:
    """The shape a whole text spells, parsed once per process and text."""
    return _TABLE[text]


def parse_shape(source: Source, start: int = 0, table: ShapeTable = _TABLE) -> tuple[Shape, int]:
    """The shape that begins at an offset, and the offset past it; `table` holds its arrays."""
    cursor = _Cursor(source, start)
    open_parts: list[tuple[int, list[Shape]]] = []
    while True:
        part_start = cursor.skip_blanks()
        if len(open_parts) >= MAX_DEPTH:
            cursor.fail(part_start, f"shape nested deeper than {MAX_DEPTH} levels")
        if cursor.eat("b("):
            array = _parse_array(cursor, table)
            if not array.is_array:
                cursor.fail(part_start, "a buffer shape holds an array")
            cursor.expect(")", "at the end of a buffer shape")
            shape = buffer_shape(array)
        elif cursor.eat("("):
            open_parts.append((part_start, []))
            if not cursor.eat(")"):
                continue
            shape = tuple_shape(open_parts.pop()[1])
        else:
            shape = _parse_array(cursor, table)
        while open_parts:
            open_parts[-1][1].append(shape)
            if cursor.eat(","):
                break
            if not cursor.eat(")"):
                _fail_open_tuple(cursor, open_parts[-1][0])
            shape = tuple_shape(open_parts.pop()[1])
        else:
            return shape, cursor.position


class _Cursor:
    """A place in a source; every step first skips blanks and comments."""

    __slots__ = ("position", "source", "text")

    def __init__(self, source: Source, position: int) -> None:
        self.source = source
        self.text = source.text
        self.position = position

    def skip_blanks(self) -> int:
        if self.text[self.position : self.position + 1] in {" ", "/", "\n", "\t", "\r"}:
            match = _BLANK.match(self.text, self.position)
            self.position = match.end() if match else self.position
        return self.position

    def eat(self, mark: str) -> bool:
        """Take `mark` if it comes next; whether it did."""
        if not self.text.startswith(mark, self.skip_blanks()):
            return False
        self.position += len(mark)
        return True

    def expect(self, mark: str, where: str) -> None:
        if not self.eat(mark):
            self.fail(self.position, f"expected `{mark}` {where}")

    def eat_match(self, pattern: re.Pattern[str]) -> str:
        """Take the text a pattern matches here; empty if it does not match."""
        match = pattern.match(self.text, self.skip_blanks())
        if match is None:
            return ""
        self.position = match.end()
        return match.group()

    def fail(self, start: int, problem: str, hint: str = "") -> NoReturn:
        """Point at the text from `start` to here, or at the one character at `start`."""
        span = Span(start, max(start + 1, self.position))
        raise ParseError(self.source, span, problem, hint)


def _fail_open_tuple(cursor: _Cursor, tuple_start: int) -> NoReturn:
    place = cursor.source.position(tuple_start)
    if cursor.position >= len(cursor.text):
        span = Span(tuple_start, tuple_start + 1)
        raise ParseError(cursor.source, span, "tuple shape is never closed", "add the missing `)`")
    cursor.fail(
        cursor.position,
        "expected `,` or `)` in a tuple shape",
        f"the tuple begins at line {place.line}, column {place.column}",
    )


def _parse_array(cursor: _Cursor, table: ShapeTable) -> Shape:
    match = _PLAIN_ARRAY.match(cursor.text, cursor.skip_blanks())
    if match is None:
        return _parse_new_array(cursor)
    text = match.group()
    shape = table.get(text)
    if shape is None:
        shape = _parse_new_array(cursor)
        table[text] = shape
    cursor.position = match.end()
    return shape


def _parse_new_array(cursor: _Cursor, *, in_physical_shape: bool = False) -> Shape:
    start = cursor.skip_blanks()
    element_type = _parse_element_type(cursor)
    dimensions, dynamic = _parse_dimensions(cursor)
    if not element_type.is_array and dimensions:
        cursor.fail(start, f"`{element_type.text}` has no dimensions")
    _check_size(cursor, start, element_type.byte_width, dimensions)
    layout_start = cursor.position
    layout = _parse_optional_layout(cursor, dimensions, in_physical_shape=in_physical_shape)
    if layout is not None and not element_type.is_array:
        cursor.fail(layout_start, f"`{element_type.text}` has no layout")
    return Shape(element_type, dimensions, dynamic, layout)


def _parse_element_type(cursor: _Cursor) -> ElementType:
    start = cursor.skip_blanks()
    word = cursor.eat_match(_WORD)
    element_type = ELEMENT_TYPE_BY_TEXT.get(word)
    if element_type is None:
        what = f"unknown element type `{word[:40]}`" if word else "expected a shape"
        cursor.fail(start, what, "a shape reads like `f32[2,3]{1,0}` or `(f32[2], s32[])`")
    return element_type


def _parse_dimensions(cursor: _Cursor) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    cursor.expect("[", "before the dimensions of a shape")
    if cursor.eat("]"):
        return (), ()
    pairs = _parse_list(cursor, _parse_dimension)
    cursor.expect("]", "after the dimensions of a shape")
    sizes = tuple(size for size, _ in pairs)
    dynamic = tuple(is_dynamic for _, is_dynamic in pairs)
    return sizes, dynamic if any(dynamic) else ()


def _parse_dimension(cursor: _Cursor) -> tuple[int, bool]:
    if cursor.eat("?"):
        return UNBOUNDED, True
    is_dynamic = cursor.eat("<=")
    return _parse_natural(cursor), is_dynamic


def _check_size(cursor: _Cursor, start: int, size: int, dimensions: tuple[int, ...]) -> None:
    """Refuse what `ValidateShapeSize` of shape_util.cc refuses."""
    if _is_too_large(size, dimensions):
        cursor.fail(start, "shape takes more bytes than 64 bits can count")


def _is_too_large(size: int, dimensions: tuple[int, ...]) -> bool:
    """Whether the bytes of an array pass int64 on the way; they are counted no further."""
    for dimension in dimensions:
        size *= 1 if dimension == UNBOUNDED else dimension
        if size > INT64_MAX:
            return True
    return False


def _parse_list(cursor: _Cursor, parse_item: Callable[[_Cursor], T]) -> list[T]:
    items = [parse_item(cursor)]
    while cursor.eat(","):
        items.append(parse_item(cursor))
    return items


def _parse_natural(cursor: _Cursor) -> int:
    """An integer from 0 to the largest int64."""
    start = cursor.skip_blanks()
    digits = cursor.eat_match(_INTEGER)
    if not digits:
        cursor.fail(start, "expected a number")
    if digits[0] == "-":
        cursor.fail(start, f"`{digits[:40]}` is negative")
    digits = digits.lstrip("0") or "0"
    if len(digits) > _INT64_DIGITS or int(digits) > INT64_MAX:
        cursor.fail(start, "number does not fit into 64 bits")
    return int(digits)


def _parse_optional_layout(
    cursor: _Cursor, dimensions: tuple[int, ...], *, in_physical_shape: bool
) -> Layout | None:
    """A layout, if the brace is followed by a number or a colon: else it opens a computation."""
    end_of_dimensions = cursor.position
    if not cursor.eat("{") or not _LAYOUT_AHEAD.match(cursor.text, cursor.skip_blanks()):
        cursor.position = end_of_dimensions
        return None
    order_start = cursor.position
    has_properties = cursor.eat(":")
    order = () if has_properties else tuple(_parse_list(cursor, _parse_natural))
    _check_order(cursor, order_start, order, len(dimensions))
    layout = Layout(order)
    if has_properties or cursor.eat(":"):
        layout = _parse_properties(cursor, order, dimensions, in_physical_shape=in_physical_shape)
    if not cursor.eat("}"):
        hint = "properties stand in the order D T L # * E S SC P M, each at most once"
        cursor.fail(cursor.position, "expected `}` at the end of a layout", hint)
    return layout


def _check_order(cursor: _Cursor, start: int, order: tuple[int, ...], rank: int) -> None:
    if len(order) != rank:
        cursor.fail(start, f"layout orders {len(order)} dimensions, the shape has {rank}")
    if sorted(order) != list(range(rank)):
        hint = f"each of 0 to {rank - 1} must appear once"
        cursor.fail(start, "layout does not order the dimensions of the shape", hint)


def _parse_properties(
    cursor: _Cursor, order: tuple[int, ...], dimensions: tuple[int, ...], *, in_physical_shape: bool
) -> Layout:
    """The properties after the colon of a layout, in the order `Layout::Print` writes them."""
    dim_level_types = _parse_dim_level_types(cursor) if _eat_letter(cursor, "D") else ()
    tiles = _parse_groups(cursor, _parse_tile) if _eat_letter(cursor, "T") else ()
    tail_padding_alignment = _parse_tail_padding(cursor) if _eat_letter(cursor, "L") else 1
    index_type = _parse_sparse_type(cursor) if cursor.eat("#") else None
    pointer_type = _parse_sparse_type(cursor) if cursor.eat("*") else None
    element_size = _parse_enclosed(cursor) if _eat_letter(cursor, "E") else 0
    memory_space = Color(_parse_enclosed(cursor) if _eat_letter(cursor, "S") else 0)
    splits: tuple[SplitConfig, ...] = ()
    if _eat_letter(cursor, "SC"):
        start = cursor.position
        splits = _parse_groups(cursor, _parse_split)
        _check_splits(cursor, start, splits, order, dimensions)
    physical_shape = None
    if _eat_letter(cursor, "P"):
        physical_shape = _parse_physical_shape(cursor, in_physical_shape=in_physical_shape)
    metadata_prefix = _parse_enclosed(cursor) if _eat_letter(cursor, "M") else 0
    return Layout(
        order,
        dim_level_types,
        tiles,
        tail_padding_alignment,
        index_type,
        pointer_type,
        element_size,
        memory_space,
        splits,
        physical_shape,
        metadata_prefix,
    )


def _eat_letter(cursor: _Cursor, letter: str) -> bool:
    """Take the property `letter` if it comes next (`S` is not `SC`); whether it did."""
    match = _WORD.match(cursor.text, cursor.skip_blanks())
    if match is None or match.group() != letter:
        return False
    cursor.position = match.end()
    return True


def _parse_groups(cursor: _Cursor, parse_group: Callable[[_Cursor], T]) -> tuple[T, ...]:
    """One or more parenthesised groups in a row."""
    groups: list[T] = []
    while not groups or cursor.text.startswith("(", cursor.skip_blanks()):
        cursor.expect("(", "in a layout")
        groups.append(parse_group(cursor))
        cursor.expect(")", "in a layout")
    return tuple(groups)


def _parse_enclosed(cursor: _Cursor) -> int:
    cursor.expect("(", "in a layout")
    number = _parse_natural(cursor)
    cursor.expect(")", "in a layout")
    return number


def _parse_tail_padding(cursor: _Cursor) -> int:
    start = cursor.position
    number = _parse_enclosed(cursor)
    if number == 0:
        cursor.fail(start, "tail padding `L(0)` aligns to nothing", "the smallest is 1")
    return number


def _parse_tile(cursor: _Cursor) -> tuple[int, ...]:
    return tuple(_parse_list(cursor, _parse_tile_dimension))


def _parse_tile_dimension(cursor: _Cursor) -> int:
    if cursor.eat("*"):
        return COMBINE
    start = cursor.skip_blanks()
    size = _parse_natural(cursor)
    if size == 0:
        cursor.fail(start, "a tile of size 0 holds nothing")
    return size


def _parse_dim_level_types(cursor: _Cursor) -> tuple[str, ...]:
    cursor.expect("(", "in a layout")
    levels = _parse_list(cursor, _parse_dim_level_type)
    cursor.expect(")", "in a layout")
    return tuple(levels)


def _parse_dim_level_type(cursor: _Cursor) -> str:
    start = cursor.skip_blanks()
    level = cursor.eat_match(_DIM_LEVEL_TYPE)
    if not level:
        cursor.fail(start, "expected a dimension level type: D, C, S or H")
    return level


def _parse_sparse_type(cursor: _Cursor) -> ElementType:
    cursor.expect("(", "in a layout")
    start = cursor.skip_blanks()
    element_type = _parse_element_type(cursor)
    if not element_type.is_unsigned_integer:
        cursor.fail(start, f"expected an unsigned integer type, found `{element_type.text}`")
    cursor.expect(")", "in a layout")
    return element_type


def _parse_split(cursor: _Cursor) -> SplitConfig:
    dimension = _parse_natural(cursor)
    cursor.expect(":", "after the dimension of a split")
    return SplitConfig(dimension, tuple(_parse_list(cursor, _parse_natural)))


def _check_splits(
    cursor: _Cursor,
    start: int,
    splits: tuple[SplitConfig, ...],
    order: tuple[int, ...],
    dimensions: tuple[int, ...],
) -> None:
    """Splits cut distinct physical dimensions inside, from left to right."""
    cut = [split.dimension for split in splits]
    if len(set(cut)) != len(cut) or max(cut) >= len(order):
        cursor.fail(start, "splits must name distinct dimensions of the shape")
    for split in splits:
        dimension, indices = split.dimension, split.split_indices
        size = dimensions[order[len(order) - 1 - dimension]]
        bounds = (0, *indices, size)
        if any(low >= high for low, high in pairwise(bounds)):
            cursor.fail(start, f"splits must cut dimension {dimension} of size {size} in order")


def _parse_physical_shape(cursor: _Cursor, *, in_physical_shape: bool) -> Shape:
    start = cursor.position
    if in_physical_shape:
        cursor.fail(start, "a physical shape has no physical shape of its own")
    cursor.expect("(", "in a layout")
    if cursor.eat("("):
        elements = [_parse_new_array(cursor, in_physical_shape=True)]
        while cursor.eat(","):
            elements.append(_parse_new_array(cursor, in_physical_shape=True))
        cursor.expect(")", "at the end of a tuple shape")
        shape = tuple_shape(elements)
    else:
        shape = _parse_new_array(cursor, in_physical_shape=True)
    cursor.expect(")", "in a layout")
    return shape
