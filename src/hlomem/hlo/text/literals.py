"""The numbers of a literal as XLA prints them, and their braces.

In: numbers and an element type, texts and the sizes of an array. Out: text. Mirrors
`RoundTripFpToString` of `xla/util.cc` and `DenseArrayPrintHelper` of `xla/literal.cc`. Of floating
point only what a literal needs is here: the nearest number that a type has.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMENTED_RANK = 4
_COMPLEX_PARTS = {"c64": "f32", "c128": "f64"}


class FloatFormat(NamedTuple):
    """A type of floating-point numbers."""

    significand: int
    """Bits, with the one that is not stored."""
    lowest: int
    """The exponent of its smallest normal number."""
    largest: float
    few: int
    """The digits with which a number is tried first."""
    many: int
    """The digits that give every number back."""
    payload: int = 0
    """Bits of a NaN's payload; 0 where it has none."""
    has_minus_zero: bool = True


FLOATS = {
    "f64": FloatFormat(53, -1022, 1.7976931348623157e308, 15, 17, 52),
    "f32": FloatFormat(24, -126, 3.4028234663852886e38, 6, 9, 23),
    "bf16": FloatFormat(8, -126, 3.3895313892515355e38, 4, 4, 7),
    "f16": FloatFormat(11, -14, 65504.0, 5, 5, 10),
    "f8e5m2": FloatFormat(3, -14, 57344.0, 2, 2, 2),
    "f8e4m3": FloatFormat(4, -6, 240.0, 3, 3, 3),
    "f8e3m4": FloatFormat(5, -2, 15.5, 3, 3, 4),
    "f8e4m3fn": FloatFormat(4, -6, 448.0, 3, 3),
    "f8e4m3b11fnuz": FloatFormat(4, -10, 30.0, 3, 3, has_minus_zero=False),
    "f8e4m3fnuz": FloatFormat(4, -7, 240.0, 3, 3, has_minus_zero=False),
    "f8e5m2fnuz": FloatFormat(3, -15, 57344.0, 2, 2, has_minus_zero=False),
    "f8e8m0fnu": FloatFormat(1, -127, 2.0**127, 2, 2, has_minus_zero=False),
    "f6e2m3fn": FloatFormat(4, 0, 7.5, 3, 3),
    "f6e3m2fn": FloatFormat(3, -2, 28.0, 2, 2),
    "f4e2m1fn": FloatFormat(2, 0, 6.0, 2, 2),
}
"""The types by name, as `std::numeric_limits` has them."""


def part_type(kind: str) -> str:
    """The type of the parts of a complex number, of others the type itself."""
    return _COMPLEX_PARTS.get(kind, kind)


def nearest(number: float, kind: str) -> float:
    """The number of a type that is next to another; infinite where it is too large for it."""
    form = FLOATS[kind]
    if not math.isfinite(number) or kind == "f64":
        return number
    if kind in ("bf16", "f16"):  # XLA goes by way of 32 bits
        number = _single(number)
    if number == 0 or not math.isfinite(number):
        rounded = number
    else:
        exponent = max(math.frexp(number)[1] - 1, form.lowest)
        quantum = math.ldexp(1.0, exponent - form.significand + 1)
        rounded = round(number / quantum) * quantum
    if abs(rounded) > form.largest:
        return math.copysign(math.inf, number)
    return rounded if form.has_minus_zero or rounded else 0.0


def _single(number: float) -> float:
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return rounded


def format_float(number: float, kind: str) -> str:
    """A number of a type: few digits where they give it back."""
    if math.isnan(number):
        return "nan" if math.copysign(1, number) > 0 else "-nan"
    few, many = FLOATS[kind].few, FLOATS[kind].many
    short = f"{number:.{few}g}"
    if few == many or math.isinf(number) or nearest(float(short), kind) == number:
        return short
    return f"{number:.{many}g}"


def format_array(texts: Sequence[str], dimensions: Sequence[int]) -> str:
    """`{ { 1, 2 }, { 3, 4 } }`; above three dimensions comments give the index of a part.

    A vector, or at most one element, is without blanks.
    """
    rank = len(dimensions)
    if rank == 0:
        return texts[0]
    pieces: list[str] = []
    index: list[int] = []  # of the part that is open, a number for each brace but the first
    rest = iter(texts)
    pieces.append(_opener(dimensions, index))
    at = [0]  # how many parts of each open brace are written
    while at:
        depth = len(at)
        size = dimensions[depth - 1]
        if depth == rank:
            pieces.append(", ".join([next(rest) for _ in range(size)]))
            at[-1] = size
        if at[-1] < size:
            if at[-1]:
                pieces.append(", ")
            index.append(at[-1])
            at[-1] += 1
            at.append(0)
            pieces.append(_opener(dimensions, index))
            continue
        pieces.append(_closer(dimensions, depth))
        at.pop()
        if index:
            index.pop()
    return "".join(pieces)


def _opener(dimensions: Sequence[int], index: Sequence[int]) -> str:
    rank, depth = len(dimensions), len(index)
    if depth == rank - 1:
        return "{" if rank == 1 or dimensions[-1] <= 1 else "{ "
    if rank < _COMMENTED_RANK or not index:
        return "{ "
    return f"{{ /*i{depth - 1}={index[-1]}*/{' ' if dimensions[depth] > 0 else ''}"


def _closer(dimensions: Sequence[int], depth: int) -> str:
    rank = len(dimensions)
    is_tight = depth == rank and (rank == 1 or dimensions[-1] <= 1)
    return "}" if is_tight else " }"
