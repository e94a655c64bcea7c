"""The literal of a constant as XLA prints it: up to ten elements, `{...}` beyond.

Integers, truth values and floats of 16 to 64 bits are written
(`HloConstantInstruction::PrintOperandsWithCanonicalNameMap`), other types as `{...}`.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import EditError
from hlomem.proto.schema import message_types, parse_message
from hlomem.proto.shape import fill_shape

if TYPE_CHECKING:
    from hlomem.hlo.shape import Shape

UNSAID = "{...}"
_MAX_ELEMENTS = 10
_MIN_COMMENTED_RANK = 4
_DIGITS = {"f32": (6, 9), "f64": (15, 17), "f16": (5, 5), "bf16": (4, 4)}
"""How many digits are tried first, and how many give every number back."""
_FLOAT_FORMATS = {"f32": "<f", "f64": "<d"}
_PACKED = {"s8": "b", "u8": "B", "s16": "h", "u16": "H", "f16": "e"}
"""Types whose elements are kept as bytes, by the letter `struct` has for them."""


def format_literal(data: bytes, shape: Shape) -> str:
    count = math.prod(shape.dimensions)
    kind = shape.element_type.text
    if not shape.is_array or not 0 <= count <= _MAX_ELEMENTS or not data or shape.dynamic:
        return UNSAID
    elements = _elements(parse_message("Literal", data), kind, count)
    if elements is None or len(elements) != count:
        return UNSAID
    if kind == "pred" and shape.dimensions:
        elements = [int(element) for element in elements]
        kind = "u8"
    texts = [_format_element(element, kind) for element in elements]
    return _nested(_row_major(texts, shape), shape.dimensions)


def encode_scalar(text: str, shape: Shape) -> bytes:
    """The literal of a constant of one element; `EditError` for types that are not written."""
    kind, packed = shape.element_type.text, shape.element_type.text in (*_PACKED, "bf16")
    proto, encoded = (message_types()[name]() for name in ("Literal", "Shape"))
    if shape.dimensions or not hasattr(proto, f"{kind}s"):
        raise EditError(f"a new constant of `{shape.text}` cannot be written")
    fill_shape(encoded, shape)
    proto.shape = encoded.SerializeToString()
    value: Any = text == "true" if kind == "pred" else float(text) if "f" in kind else int(text)
    if not packed:
        getattr(proto, f"{kind}s").append(value)
    elif kind == "bf16":
        proto.bf16s = struct.pack("<f", value)[2:]
    else:
        setattr(proto, f"{kind}s", struct.pack(f"<{_PACKED[kind]}", value))
    return bytes(proto.SerializeToString())


def _elements(proto: Any, kind: str, count: int) -> list[Any] | None:
    """The elements as they lie in memory; None for types that are not written."""
    if kind == "pred":
        return list(proto.preds)
    if kind in ("s32", "s64", "u32", "u64", "f32", "f64"):
        return list(getattr(proto, f"{kind}s"))
    if kind == "bf16" and len(proto.bf16s) == 2 * count:
        halves = struct.unpack(f"<{count}H", proto.bf16s)
        return [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]
    code = _PACKED.get(kind)
    data = b"" if code is None else getattr(proto, f"{kind}s")
    if code is None or len(data) != count * struct.calcsize(code):
        return None
    return list(struct.unpack(f"<{count}{code}", data))


def _format_element(element: Any, kind: str) -> str:
    if kind == "pred":
        return "true" if element else "false"
    return _format_float(element, kind) if kind in _DIGITS else str(element)


def _format_float(number: float, kind: str) -> str:
    """As `RoundTripFpToString` writes it: few digits where they give the number back."""
    if math.isnan(number):
        return "nan" if math.copysign(1, number) > 0 else "-nan"
    few, many = _DIGITS[kind]
    short = f"{number:.{few}g}"
    if few == many or math.isinf(number) or _rounded(float(short), kind) == number:
        return short
    return f"{number:.{many}g}"


def _rounded(number: float, kind: str) -> float:
    """The nearest number of a type; infinite where it is too large for it."""
    code = _FLOAT_FORMATS[kind]
    try:
        rounded: float = struct.unpack(code, struct.pack(code, number))[0]
    except OverflowError:
        return math.inf
    return rounded


def _row_major(texts: list[str], shape: Shape) -> list[str]:
    """Elements in the order of the indices, out of the order of the layout."""
    order = shape.layout.minor_to_major if shape.layout else ()
    rank = len(shape.dimensions)
    if not order or order == tuple(range(rank - 1, -1, -1)):
        return texts
    stride, strides = 1, [0] * rank
    for dimension in order:
        strides[dimension] = stride
        stride *= shape.dimensions[dimension]
    places = [0]
    for dimension, size in enumerate(shape.dimensions):
        places = [place + index * strides[dimension] for place in places for index in range(size)]
    return [texts[place] for place in places]


def _nested(texts: list[str], dimensions: tuple[int, ...], place: tuple[int, ...] = ()) -> str:
    """`{ { 1, 2 }, { 3, 4 } }`; above three dimensions comments say where a part stands.

    Mirrors `DenseArrayToStringHelper` of `xla/literal.cc`; a vector, and what has one element at
    most, stands without blanks.
    """
    rest = dimensions[len(place) :]
    if not rest:
        return texts[0]
    if len(rest) == 1:
        blank = " " if place and rest[0] > 1 else ""
        return f"{{{blank}{', '.join(texts)}{blank}}}"
    size = math.prod(rest[1:])
    parts = [
        _nested(texts[number * size : (number + 1) * size], dimensions, (*place, number))
        for number in range(rest[0])
    ]
    has_comment = place and len(dimensions) >= _MIN_COMMENTED_RANK
    comment = f"/*i{len(place) - 1}={place[-1]}*/ " if has_comment else ""
    return f"{{ {comment}{', '.join(parts)} }}"
