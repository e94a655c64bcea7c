"""Shapes: text in, the same text out; parts in XLA's order; errors that point at their place."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlomem.base.errors import ParseError
from hlomem.base.quantities import Color
from hlomem.base.source import Source
from hlomem.hlo.shape import (
    COMBINE,
    ELEMENT_TYPE_BY_TEXT,
    UNBOUNDED,
    ElementType,
    Layout,
    Shape,
    ShapeIndex,
    SplitConfig,
    buffer_shape,
    default_layout,
    tuple_shape,
)
from hlomem.hlo.text.shape_parser import (
    MAX_DEPTH,
    ShapeTable,
    parse_shape,
    parse_shape_text,
)

# All were printed by XLA: by jaxlib 0.12.0.1 (from text to a module and back) or in dumps of
# libtpu 0.0.51.
PRINTED_BY_XLA = [
    "f32[]",
    "()",
    "token[]",
    "opaque[]",
    "f32[2,3]{1,0:T(8,128)(2,1)E(4)S(1)}",
    "f32[2,3]{1,0:T(*,128)}",
    "f32[2,3]{1,0:T(8)(2)}",
    "f32[2]{0:M(8)}",
    "f32[2]{0:#(u32)*(u32)}",
    "f32[4]{0:SC(0:2)}",
    "f32[<=4,?]{1,0}",
    "(f32[2]{0}, b(f32[2]{0}))",
    "f6e2m3fn[2]{0}",
    "s32[128]{0:T(1)L(128)S(4)}",
    "pred[]{:T(512)S(6)}",
    "((f32[3]{0}, s32[]), token[])",
    "(s4[9]{0:E(4)}, u2[9]{0:E(2)}, c64[9]{0}, c128[9]{0}, pred[], /*index=5*/bf16[9]{0}, s8[])",
]


@pytest.mark.parametrize("text", PRINTED_BY_XLA)
def test_prints_back_what_xla_printed(text: str) -> None:
    shape = parse_shape_text(text)
    assert shape.text == text
    assert str(shape) == text
    assert pickle.loads(pickle.dumps(shape)) == shape  # noqa: S301


def test_layouts_of_older_xla_print_back() -> None:
    text = "f32[10,10]{1,0:D(D,C+~)T(2,2)#(u32)*(u64)P((u32[2]{0}, f32[9]{0}))}"
    assert parse_shape_text(text).text == text


def test_text_without_layout_drops_layouts_in_every_part() -> None:
    shape = parse_shape_text("(f32[2,3]{1,0:T(8,128)}, (s32[]{:S(2)}, b(f32[<=4]{0})))")
    assert shape.text_without_layout == "(f32[2,3], (s32[], b(f32[<=4])))"


@pytest.mark.parametrize(
    ("loose", "printed"),
    [
        ("f32 [2] {0}", "f32[2]{0}"),
        ("f32[ 2 , 3 ]{ 1 , 0 : T(8) (2) }", "f32[2,3]{1,0:T(8)(2)}"),
        ("(f32[2],f32[3] /* two */ ,\n s32[]// three\n)", "(f32[2], f32[3], s32[])"),
        ("f32[007]", "f32[7]"),
        ("f32[2]{0:}", "f32[2]{0}"),
    ],
)
def test_blanks_and_comments_are_skipped_as_xla_does(loose: str, printed: str) -> None:
    assert parse_shape_text(loose).text == printed


def test_a_shape_ends_where_its_text_ends() -> None:
    line = "  %add.1 = (f32[2]{0}, s32[]) fusion(%p), kind=kLoop"
    shape, end = parse_shape(Source("m.hlo", line), line.index("("))
    assert shape.text == "(f32[2]{0}, s32[])"
    assert line[end:] == " fusion(%p), kind=kLoop"


def test_a_brace_that_opens_a_computation_is_not_a_layout() -> None:
    text = "(p: f32[2]) -> f32[123] {\n  p = f32[2] parameter(0)"
    shape, end = parse_shape(Source("m.hlo", text), text.index("f32[123]"))
    assert (shape.text, text[end : end + 3]) == ("f32[123]", " {\n")


def test_the_fields_of_a_layout() -> None:
    layout = parse_shape_text("u4[8,16]{0,1:T(*,8)(2)L(32)E(4)S(3)SC(1:2,5)M(64)}").layout
    assert layout == Layout(
        minor_to_major=(0, 1),
        tiles=((COMBINE, 8), (2,)),
        tail_padding_alignment=32,
        element_size_in_bits=4,
        memory_space=Color(3),
        split_configs=(SplitConfig(1, (2, 5)),),
        metadata_prefix_bytes=64,
    )


def test_dimensions_may_be_bounded_or_unbounded() -> None:
    shape = parse_shape_text("f32[<=4,?,2]")
    assert shape.dimensions == (4, UNBOUNDED, 2)
    assert shape.dynamic == (True, True, False)
    assert parse_shape_text("f32[4,2]").dynamic == ()


def test_subshapes_come_tuple_first_then_its_elements() -> None:
    shape = parse_shape_text("(f32[1], (s32[], ()), b(f32[2]))")
    assert [(str(index), part.text) for index, part in shape.subshapes()] == [
        ("{}", "(f32[1], (s32[], ()), b(f32[2]))"),
        ("{0}", "f32[1]"),
        ("{1}", "(s32[], ())"),
        ("{1,0}", "s32[]"),
        ("{1,1}", "()"),
        ("{2}", "b(f32[2])"),
    ]
    assert [str(index) for index, _ in shape.leaves()] == ["{0}", "{1,0}", "{2}"]


def test_a_part_is_found_by_its_index() -> None:
    shape = parse_shape_text("(f32[1], (s32[], f32[7]))")
    assert shape.subshape((1, 1)).text == "f32[7]"
    assert shape.optional_subshape((0, 0)) is None
    with pytest.raises(IndexError, match=r"has no part at \{1,2\}"):
        shape.subshape((1, 2))


@pytest.mark.parametrize(("index", "text"), [((), "{}"), ((0,), "{0}"), ((1, 0, 12), "{1,0,12}")])
def test_a_shape_index_prints_as_xla_prints_it(index: tuple[int, ...], text: str) -> None:
    assert str(ShapeIndex(index)) == text
    assert ShapeIndex(index) == index


def test_equal_text_gives_the_same_object_and_equal_shapes_the_same_hash() -> None:
    text = "(f32[3,5]{1,0}, s32[])"
    assert parse_shape_text(text) is parse_shape_text(text)
    again = ShapeTable()[text]
    assert again is not parse_shape_text(text)
    assert again == parse_shape_text(text)
    assert hash(again) == hash(parse_shape_text(text))
    assert again != parse_shape_text("(f32[3,5]{0,1}, s32[])")
    assert again != text


def test_tuples_nest_as_deep_as_xla_allows() -> None:
    text = "(" * (MAX_DEPTH - 1) + ")" * (MAX_DEPTH - 1)
    shape = ShapeTable()[text]
    assert shape.text == text
    assert shape == ShapeTable()[text]
    assert sum(1 for _ in shape.elements[0].leaves()) == 0


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("f32[2,3]{1,1}", 10, "layout does not order the dimensions"),
        ("f32[2,3]{2,0}", 10, "layout does not order the dimensions"),
        ("f32[2]{1,0}", 8, "layout orders 2 dimensions, the shape has 1"),
        ("f32[]{0}", 7, "layout orders 1 dimensions, the shape has 0"),
        ("f32[2]{0:T(-8)}", 12, "`-8` is negative"),
        ("f32[2]{0:T(0)}", 12, "a tile of size 0"),
        ("f32[2]{0:L(0)}", 11, "aligns to nothing"),
        ("f32[2]{0:S(1)T(8)}", 14, "expected `}` at the end of a layout"),
        ("f32[2]{0:#(s32)}", 12, "expected an unsigned integer type, found `s32`"),
        ("f32[4]{0:SC(0:2,1)}", 12, "splits must cut dimension 0 of size 4 in order"),
        ("f32[4]{0:SC(1:2)}", 12, "splits must name distinct dimensions"),
        ("f32[2]{0:P(f32[2]{0:P(f32[1])})}", 22, "no physical shape of its own"),
        ("f32[2]{0", 9, "expected `}`"),
        ("f32[-1]", 5, "`-1` is negative"),
        ("f32[9223372036854775808]", 5, "number does not fit into 64 bits"),
        ("f32[" + "9" * 5000 + "]", 5, "number does not fit into 64 bits"),
        ("s8[9223372036854775807,2]", 1, "more bytes than 64 bits can count"),
        ("f32[٣]", 5, "expected a number"),
        ("f32[2,", 7, "expected a number"),
        ("f33[2]", 1, "unknown element type `f33`"),
        ("tuple[]", 1, "unknown element type `tuple`"),
        ("token[3]", 1, "`token` has no dimensions"),
        ("token[]{:S(1)}", 8, "`token` has no layout"),
        ("b(token[])", 1, "a buffer shape holds an array"),
        ("(f32[2], s32[]", 1, "tuple shape is never closed"),
        ("(f32[2],)", 9, "expected a shape"),
        ("(f32[2]; s32[])", 8, "expected `,` or `)` in a tuple shape"),
        ("f32[2] /* x", 8, "unexpected text after a shape"),
        ("f32[2]\0", 7, "unexpected text after a shape"),
        ("\0", 1, "expected a shape"),
        ("", 1, "expected a shape"),
        ("(" * 10_000, MAX_DEPTH + 1, "nested deeper than 8192"),
    ],
)
def test_errors_point_at_the_place(text: str, column: int, problem: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_shape_text(text)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert problem in caught.value.problem
    assert "^" in str(caught.value)


def test_errors_inside_a_module_carry_its_line() -> None:
    source = Source(
        "m.hlo", "HloModule m\n\nENTRY e {\n  p = (f32[2]{0}, f32[2]{1}) parameter(0)\n"
    )
    with pytest.raises(ParseError) as caught:
        parse_shape(source, source.text.index("("))
    assert str(caught.value).startswith("m.hlo:4:26: layout does not order")


def test_a_very_long_text_ends_in_an_error_without_delay() -> None:
    dimensions = "9," * 200_000
    for text in (
        f"f32[{dimensions}",
        f"f32[{dimensions}9]",
        "(" + "s8[]," * 50_000,
        "/*" * 200_000,
    ):
        with pytest.raises(ParseError):
            parse_shape_text(text)


# -- properties ---------------------------------------------------------------------------------

_ARRAY_TYPES = [kind for kind in ELEMENT_TYPE_BY_TEXT.values() if kind.is_array]
_small = st.integers(0, 1000)


@st.composite
def layouts(draw: st.DrawFn, rank: int) -> Layout:
    """Any layout of an array of some rank, but for splits and sparse parts."""
    order = tuple(draw(st.permutations(range(rank))))
    tile = st.lists(st.integers(1, 256) | st.just(COMBINE), min_size=1, max_size=3).map(tuple)
    return Layout(
        order,
        tiles=tuple(draw(st.lists(tile, max_size=3))),
        tail_padding_alignment=draw(st.integers(1, 256)),
        element_size_in_bits=draw(st.sampled_from([0, 2, 4])),
        memory_space=Color(draw(st.integers(0, 12))),
        metadata_prefix_bytes=draw(_small),
    )


@st.composite
def arrays(draw: st.DrawFn) -> Shape:
    """Any array, with or without layout."""
    dimensions = tuple(draw(st.lists(_small | st.just(UNBOUNDED), max_size=4)))
    dynamic = tuple(size == UNBOUNDED or draw(st.booleans()) for size in dimensions)
    layout = draw(st.none() | layouts(len(dimensions)))
    if layout == Layout(()):
        layout = None  # a scalar's empty layout is not printed
    element_type = draw(st.sampled_from(_ARRAY_TYPES))
    return Shape(element_type, dimensions, dynamic if any(dynamic) else (), layout)


_leaves = (
    arrays()
    | arrays().map(buffer_shape)
    | st.sampled_from([Shape(ElementType.TOKEN), Shape(ElementType.OPAQUE)])
)
shapes = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=7).map(tuple_shape), max_leaves=8
)


@given(shapes)
@settings(max_examples=60, deadline=None)
def test_parse_undoes_print(shape: Shape) -> None:
    parsed = ShapeTable()[shape.text]
    assert parsed == shape
    assert hash(parsed) == hash(shape)
    assert ShapeTable()[shape.text_without_layout].text == shape.text_without_layout


@given(shapes)
@settings(max_examples=30, deadline=None)
def test_every_part_is_at_its_index(shape: Shape) -> None:
    parts = list(shape.subshapes())
    assert all(shape.subshape(index) is part for index, part in parts)
    assert [index for index, _ in parts] == sorted(index for index, _ in parts)


@given(st.text(alphabet="f32[],{}():TS<=?*/ 10b\0", max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_shape_or_one_clear_error(text: str) -> None:
    try:
        shape = parse_shape_text(text)
    except ParseError as error:
        assert 0 <= error.span.start <= len(text)  # noqa: PT017
        assert str(error).startswith("<shape>:")  # noqa: PT017
    else:
        assert parse_shape_text(shape.text) == shape


def test_default_layout_is_row_major() -> None:
    assert str(default_layout(3)) == "{2,1,0}"
    assert parse_shape_text("f32[2]").with_layout(default_layout(1)).text == "f32[2]{0}"
