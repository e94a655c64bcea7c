"""Two texts of one program, compiled at two sizes, side by side: the numbers in which they differ.

In: the texts of two modules. Out: pieces of the first, and pairs of numbers where the second has
another one. They may differ in the extents of shapes, in attributes that repeat these (ranges of
slices, sizes of windows), in literals, and in what is said about an instruction rather than by it
(metadata, the backend's settings). Anything else makes them two programs, which is an
`UnsupportedError` at the first such line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hlomem.base.errors import UnsupportedError
from hlomem.base.patterns import lazy_pattern
from hlomem.base.source import Source, Span
from hlomem.hlo.text.attributes import TextProblem, split_attributes
from hlomem.hlo.text.scanner import NAME, SHAPE_AND_OPCODE, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    Piece: TypeAlias = "str | tuple[int, int]"
    """A text that both have, or the number of each."""

_HEADER = lazy_pattern(r"\s*+HloModule [^\n]*+\n?")
_ROW = lazy_pattern(
    rf"^(  (?:ROOT )?%?{NAME} = ){SHAPE_AND_OPCODE}([^()\n]*+|[^\n]*?)\)"
    r"(|, [A-Za-z_][\w\-]*+=[^\n]*+)$"
)
_EXTENTS = lazy_pattern(r"(\[[0-9<=,]++\])")
_NUMBER = lazy_pattern(r"([0-9]{1,18})")
_READ = lazy_pattern(
    r'"aliasing_operands":\{"lists":\[(?:\{"indices":\[[^\]]*\]\},?)*\]\}|"beta":[^,}]*'
)
"""The settings of a backend that decide what may be written over what."""
_WITH_SHAPES = frozenset({"operand_layout_constraints"})
_WITH_NUMBERS = frozenset(
    {"dynamic_slice_sizes", "limit_indices", "padding", "slice", "slice_sizes", "window"}
)
"""Attributes that repeat extents."""
_ASIDE = frozenset({"backend_config", "frontend_attributes", "metadata", "origin", "statistics"})
"""Attributes that do not tell an instruction what to do, but for `_READ`."""
_ELIDED = "{...}"
_HINT = "a compiler makes one program of some sizes and another of others: give two that are alike"


class _OtherProgramError(Exception):
    """Two lines that say different things."""


def align_texts(one: Source, other: Source) -> Iterator[Piece]:
    """The pieces of two texts, in order; tables of stack frames are those of the first."""
    header, rest = _parts(one.text)
    other_header, other_rest = _parts(other.text)
    yield from _aligned_line(one, other, header, other_header, (0, 0))
    yield one.text[len(header) : rest]
    lines, others = one.text[rest:].split("\n"), other.text[other_rest:].split("\n")
    position, other_position = rest, other_rest
    for number, (line, its) in enumerate(zip(lines, others, strict=False)):
        if number:
            yield "\n"
        if line == its:
            yield line
        else:
            yield from _aligned_line(one, other, line, its, (position, other_position))
        position += len(line) + 1
        other_position += len(its) + 1
    if len(lines) != len(others):
        longer = one if len(lines) > len(others) else other
        start = min(position if longer is one else other_position, len(longer.text) - 1)
        raise _refusal(longer, start, "the other program has no such line")


def _parts(text: str) -> tuple[str, int]:
    """The first line, and the offset at which the computations begin."""
    header = _HEADER.match(text)
    start = header.end() if header is not None else 0
    tables = TABLES.match(text, start)
    assert tables is not None, "matches the empty text, too"
    return text[:start], tables.end()


def _aligned_line(
    one: Source, other: Source, line: str, its: str, places: tuple[int, int]
) -> Iterator[Piece]:
    try:
        yield from _align(line, its)
    except (_OtherProgramError, TextProblem) as problem:
        first, second = (
            f"line {source.position(place).line}"
            for source, place in zip((one, other), places, strict=True)
        )
        where = f"{first} of {one.name}" if one.name != other.name else f"{first} of the first"
        raise _refusal(other, places[1], f"{second} differs from {where}: {problem}") from None


def _refusal(source: Source, start: int, problem: str) -> UnsupportedError:
    end = source.text.find("\n", start)
    span = Span(start, len(source.text) if end < 0 else end)
    what = f"{problem}; these are two programs, so that a third size cannot be told"
    return UnsupportedError(source, span, what, _HINT)


def _align(line: str, its: str) -> list[Piece]:
    """The pieces of a line."""
    row, other = _ROW.match(line), _ROW.match(its)
    if row is None or other is None:
        is_head = _HEADER.match(line) is not None
        return _align_shapes(line, its, f"another {'header' if is_head else 'computation'}")
    name, shape, opcode, operands, attributes = row.groups()
    its_name, its_shape, its_opcode, its_operands, its_attributes = other.groups()
    if name != its_name or opcode != its_opcode:
        raise _OtherProgramError("another instruction")
    extents = _align_shapes(shape, its_shape, "another type or layout")
    if opcode == "constant":
        inside = [operands if operands == its_operands or "{" not in operands else _ELIDED]
    else:
        inside = _align_shapes(operands, its_operands, "other operands")
    attributed = _align_attributes(attributes, its_attributes)
    return [name, *extents, f" {opcode}(", *inside, ")", *attributed]


def _align_shapes(text: str, its: str, problem: str) -> list[Piece]:
    """The pieces of a text with shapes in it, which may have other extents."""
    if text == its:
        return [text]
    parts, others = _EXTENTS.split(text), _EXTENTS.split(its)
    if len(parts) != len(others):
        raise _OtherProgramError(problem)
    pieces: list[Piece] = []
    for number, (part, other) in enumerate(zip(parts, others, strict=True)):
        if part == other:
            pieces.append(part)
        elif number % 2:
            pieces += _align_numbers(part, other, problem)
        else:
            raise _OtherProgramError(problem)
    return pieces


def _align_numbers(text: str, its: str, problem: str) -> list[Piece]:
    """The pieces of a text in which any number may be another."""
    parts, others = _NUMBER.split(text), _NUMBER.split(its)
    if parts[::2] != others[::2]:
        raise _OtherProgramError(problem)
    return [
        part if part == other else (int(part), int(other))
        for part, other in zip(parts, others, strict=True)
    ]


def _align_attributes(text: str, its: str) -> list[Piece]:
    if text == its:
        return [text]
    ours, theirs = split_attributes(text), split_attributes(its)
    if ours.keys() - _ASIDE != theirs.keys() - _ASIDE:
        raise _OtherProgramError("other attributes")
    pieces: list[Piece] = []
    for name, value in ours.items():
        pieces += [f", {name}=", *_align_attribute(name, value, theirs.get(name, ""))]
    return pieces


def _align_attribute(name: str, value: str, other: str) -> list[Piece]:
    problem = f"another `{name}`"
    if name in _WITH_NUMBERS:
        return _align_numbers(value, other, problem)
    if name in _WITH_SHAPES:
        return _align_shapes(value, other, problem)
    if name in _ASIDE:
        is_same = name != "backend_config" or _READ.findall(value) == _READ.findall(other)
    else:
        is_same = value == other
    if not is_same:
        raise _OtherProgramError(problem)
    return [value]
