"""Literals: the numbers of constants, checked against their shape and written as XLA prints them.

In: tokens, at a literal, and its shape. Out: its text, of all its elements. Mirrors `ParseLiteral`,
`ParseDenseLiteral`, `SetValueInLiteral` and `CheckParsedValueIsInRange` of
`hlo/parser/hlo_parser.cc`. Elements are counted where they are written, never by what a shape says.
"""

from __future__ import annotations

import math
from math import prod
from typing import TYPE_CHECKING

from hlomem.hlo.shape import INT64_MAX
from hlomem.hlo.shape_inference.elements import is_complex
from hlomem.hlo.text.freeform.values import Value, read_double
from hlomem.hlo.text.literals import (
    FLOATS,
    format_array,
    format_float,
    nearest,
    part_type,
)
from hlomem.hlo.text.style import MAX_ELEMENTS, UNSAID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.hlo.shape import Shape
    from hlomem.hlo.text.freeform.tokens import Tokens

_QUIET = 1 << 51
_NUMBERS = ("true", "false", "integer", "decimal", "inf", "minus_inf")


def read_literal(tokens: Tokens, shape: Shape) -> str:
    """The literal of a constant of a shape."""
    if not shape.is_tuple:
        return _read_array(tokens, shape)
    if tokens.kind == "{":  # XLA prints this and does not read it
        tokens.advance()
        tokens.expect("...")
        tokens.expect("}")
        return UNSAID
    # Tuples in tuples, without recursion: the shapes that are still to be read, and closers.
    pieces: list[str] = []
    pending: list[Shape | str] = [shape]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            tokens.expect(item)
            pieces.append({"(": "( ", ",": ", ", ")": " )"}[item])
        elif not item.is_tuple:
            pieces.append(_read_array(tokens, item))
        elif tokens.kind == "(" and tokens.peek() == ")":
            pending += [")", "("]
        else:
            pending.append(")")
            for number in range(len(item.elements) - 1, -1, -1):
                pending.append(item.elements[number])
                pending += [","] if number else []
            pending.append("(")
    return "".join(pieces)


def read_shaped_literal(tokens: Tokens) -> Value:
    """A literal that says its shape: `f32[2] {1, 2}`, `( s32[] 1, f32[] 2 )`."""
    pieces: list[str] = []
    depth = 0
    while True:
        if tokens.eat("("):
            pieces.append("( ")
            depth += 1
            if tokens.kind != ")":
                continue
        else:
            shape = tokens.read_shape()
            pieces.append(f"{shape.text} {read_literal(tokens, shape)}")
        while depth and tokens.eat(")"):
            pieces.append(" )")
            depth -= 1
        if not depth:
            return Value("".join(pieces))
        tokens.expect(",")
        pieces.append(", ")


def _read_array(tokens: Tokens, shape: Shape) -> str:
    if not shape.is_array:
        tokens.fail(f"there is no literal of shape `{shape.text_without_layout[:80]}`")
    sizes, kind = shape.dimensions, shape.element_type.text
    rank = len(sizes)
    seen = [0] * rank  # parts of each open brace
    depth = 0
    is_omitted = False
    texts: list[str] = []
    while True:
        mark = tokens.kind
        if mark == "{":
            depth += 1
            if depth > rank:
                tokens.fail(f"an array of {rank} dimensions has no braces in more")
            _count(tokens, shape, seen, depth - 1)
            seen[depth - 1] = 0
        elif mark == "}":
            if depth == 0 or (seen[depth - 1] != sizes[depth - 1] and not is_omitted):
                tokens.fail(_wrong_count(shape, seen, depth))
            depth -= 1
        elif mark == "...":
            if depth != 1:
                tokens.fail("`...` belongs in the outermost braces")
            is_omitted = True
        elif mark in _NUMBERS or (mark == "(" and is_complex(shape.element_type)):
            if depth not in (0, rank):
                tokens.fail(f"numbers are in {rank} braces, not in {depth}")
            _count(tokens, shape, seen, depth)
            texts.append(_read_element(tokens, kind, in_array=rank > 0))
            if depth == 0:
                return _alone(texts[0], sizes)
            continue
        elif mark != "," or depth == 0:
            tokens.fail("expected a number, or braces with some")
        tokens.advance()
        if depth == 0:
            break
    return UNSAID if is_omitted else format_array(texts, sizes)


def _alone(text: str, sizes: Sequence[int]) -> str:
    """One number without braces: XLA takes it for the first element, and the others are 0."""
    count = prod(sizes)
    return format_array([text, *["0"] * (count - 1)], sizes) if count <= MAX_ELEMENTS else UNSAID


def _count(tokens: Tokens, shape: Shape, seen: list[int], depth: int) -> None:
    """Count one more part of the brace that is open, which may have no more than its size."""
    if depth:
        seen[depth - 1] += 1
        if seen[depth - 1] > shape.dimensions[depth - 1]:
            tokens.fail(f"more than {shape.dimensions[depth - 1]} elements in these braces")


def _wrong_count(shape: Shape, seen: list[int], depth: int) -> str:
    if depth == 0:
        return "unbalanced `}`"
    return f"{seen[depth - 1]} elements in these braces, not {shape.dimensions[depth - 1]}"


def _read_element(tokens: Tokens, kind: str, *, in_array: bool) -> str:
    if tokens.kind == "(":
        return _read_complex(tokens, part_type(kind))
    if kind == "pred" or tokens.kind in ("true", "false"):
        return _read_truth(tokens, kind, in_array=in_array)
    if kind in FLOATS:
        return _read_float(tokens, kind)
    if kind in ("c64", "c128"):
        tokens.fail(f"a `{kind}` is written `(real, imaginary)`")
    return _read_integer(tokens, kind)


def _read_truth(tokens: Tokens, kind: str, *, in_array: bool) -> str:
    if kind != "pred":
        tokens.fail(f"`{tokens.value}` is no `{kind}`")
    is_true = tokens.kind == "true" or (tokens.kind != "false" and tokens.integer() != 0)
    tokens.advance()
    if in_array:
        return "1" if is_true else "0"
    return "true" if is_true else "false"


def _read_integer(tokens: Tokens, kind: str) -> str:
    number = tokens.integer(f"an integer for `{kind}`")
    bits, is_signed = int(kind[1:]), kind[0] == "s"
    # XLA reads 64 bits and looks at the sign later.
    value = number - 2**64 if number > INT64_MAX else number
    value = value if is_signed else value % 2**64
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    if not low <= value <= high:
        tokens.fail(f"`{kind}` has numbers from {low} to {high}")
    tokens.advance()
    return str(value)


def _read_float(tokens: Tokens, kind: str) -> str:
    if tokens.kind == "decimal" and "n" in tokens.value:
        return _read_nan(tokens, kind)
    start = tokens.start
    number = read_double(tokens)
    rounded = nearest(number, kind)
    if math.isfinite(number) and not math.isfinite(rounded):
        largest = FLOATS[kind].largest
        tokens.fail(f"`{kind}` has numbers from {-largest:g} to {largest:g}", start=start)
    return format_float(rounded, kind)


def _read_nan(tokens: Tokens, kind: str) -> str:
    sign = "-" if tokens.value[0] == "-" else ""
    digits = tokens.value.partition("(0x")[2].rstrip(")")
    payload = int(digits, 16) if digits else _QUIET
    bits = FLOATS[kind].payload
    if payload == _QUIET:
        payload = 1 << (bits - 1) if bits else 0
    elif payload == 0 or payload >= 1 << bits:
        tokens.fail(f"a NaN of `{kind}` has no payload 0x{payload:x}")
    tokens.advance()
    is_quiet = bits == 0 or payload == 1 << (bits - 1)
    return f"{sign}nan" if is_quiet else f"{sign}nan(0x{payload:x})"


def _read_complex(tokens: Tokens, kind: str) -> str:
    tokens.advance()
    real = _read_float(tokens, kind)
    tokens.expect(",")
    imaginary = _read_float(tokens, kind)
    tokens.expect(")")
    # XLA looks at the real part for both (`SetValueInLiteralHelper`).
    return f"({real}, {real if 'nan' in real else imaginary})"
