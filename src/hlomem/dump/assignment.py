"""`*-buffer-assignment.txt` (ToString of BufferAssignment and BufferAllocation)."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from hlomem.base.errors import ParseError
from hlomem.base.native import kernel
from hlomem.base.source import Source, Span
from hlomem.dump.grammar import (
    INDEX,
    INT64,
    NAME,
    Form,
    format_index,
    parse_allocation_index,
    parse_byte_count,
    parse_color,
    parse_index,
    parse_offset,
    parse_parameter_number,
    parse_value_id,
    unexpected,
)
from hlomem.dump.records import (
    Allocation,
    AllocationAttributes,
    AssignedValue,
    Assignment,
    Parameter,
    UnknownAttribute,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.base.quantities import AllocationIndex, ByteCount, Color, Offset, ValueId
    from hlomem.dump.records import ShapeIndex

TITLE = "BufferAssignment:\n"

_read_natively: Callable[..., tuple[list[tuple[Any, ...]], int]] | None = kernel(
    "hlomem.dump._lines", "read_allocations"
)
"""Reads allocations up to the first that differs from XLA's format."""

VALUE_PIECES = (
    ("<", "`<`, the start of a value"),
    (rf"({INT64}) ", "a number, the value's id"),
    (f"({NAME})", "the name of an instruction"),
    (rf"({INDEX})?", "a shape index"),
    (r"( \(phi\))?", "`(phi)`"),
    (rf"(?: @({INT64}))?", "`@` and a colour"),
    (">", "`>`, the end of a value"),
)

_FLAGS = {
    "is_constant": ", constant",
    "is_thread_local": ", thread-local",
    "maybe_live_out": ", maybe-live-out",
    "is_preallocated_temp": ", preallocated-temp",
}
_ATTRIBUTES: Mapping[str, str] = {
    "color": rf", color (?!0[,:])({INT64})",
    "page": rf", page ({INT64})",
    "parameter": rf", parameter ({INT64}), shape \|([^|\n]*)\| at ShapeIndex ({INDEX})",
    "output_shape": r", output shape is \|([^|\n]*)\|",
    **{name: f"({word})" for name, word in _FLAGS.items()},
}
_NAMES = list(_ATTRIBUTES)
_UNKNOWN = Form((r", (?:\|[^|\n]*\||[^|\n,:]|:(?!\n)|,(?! ))+", "an attribute"))

_NUMBER = Form(("allocation ", "`allocation`"), (f"({INT64}): size ", "a number and `: size`"))
_EXACT_SIZE = Form((f"({INT64})", "a number, the size in bytes"))
ROUNDED_SIZE = Form((r"([\d.]+[KMGTPE]?i?B)", "a size such as `1.5KiB`"))
_HEADER_END = Form((":\n", "`, `, an attribute, or `:` at the end of the line"))
_HEADER = Form(
    (rf"allocation ({INT64}): size ({INT64})", "a number and a size"),
    ("".join(f"(?:{pattern})?" for pattern in _ATTRIBUTES.values()), "attributes"),
    (":\n", "the end of a line"),
)
_VALUE_LINES = Form(("(?: value: [^\n]*\n)*", "values"))
_VALUE = Form(
    (" value: ", "` value:`"),
    *VALUE_PIECES,
    (r" \(size=", "`(size=`"),
    (f"({INT64}),offset=", "a number, then `,offset=`"),
    (rf"({INT64})\): ", "a number, then `): `"),
    ("([^\n]+)\n", "a shape"),
)
_NEXT = "\nallocation "
_REUSE_TITLE = " reused by buffers of a different color:\n"
_REUSE = Form(
    ("  value: ", "`  value:`"),
    *VALUE_PIECES,
    (rf" \(color=({INT64})\)\n", "`(color=` and a number"),
)


def parse(source: Source, start: int = 0, end: int | None = None) -> Assignment:
    """The allocations in [start, end), which begins with `BufferAssignment:`."""
    end = len(source.text) if end is None else end
    if not source.text.startswith(TITLE, start):
        raise unexpected(source, start, f"`{TITLE.strip()}`")
    cursor, allocations = start + len(TITLE), []
    is_native = _read_natively is not None and source.text.isascii()
    while cursor < end:
        if is_native:
            read, cursor = _parse_natively(source.text, cursor, end)
            allocations += read
            if cursor == end:
                break
        allocation, cursor = _parse_allocation(source, cursor, end)
        allocations.append(allocation)
    return Assignment(allocations=tuple(allocations))


def _parse_natively(text: str, start: int, end: int) -> tuple[list[Allocation], int]:
    """The allocations from `start` up to the first unusual one, and its offset."""
    assert _read_natively is not None
    rows, cursor = _read_natively(text, start, end)
    allocations = []
    for row in rows:
        fields = dict(zip(("index", "size", *_NAMES, "values"), row, strict=True))
        if (held := fields["parameter"]) is not None:
            fields["parameter"] = Parameter(number=held[0], shape=held[1], index=held[2])
        fields["values"] = _assigned_values(fields["values"])
        allocations.append(Allocation(**fields))
    return allocations, cursor


def parse_headers(source: Source, end: int) -> list[Allocation]:
    """The allocations up to `end` without their values, which are skipped."""
    cursor = source.text.find(TITLE, 0, end)
    cursor = source.text.find(_NEXT, cursor, end) if cursor >= 0 else cursor
    allocations = []
    while cursor >= 0:
        fields, cursor = _parse_header(source, cursor + 1, end)
        allocations.append(Allocation(**fields))
        cursor = source.text.find(_NEXT, cursor - 1, end)
    return allocations


def _parse_allocation(source: Source, start: int, end: int) -> tuple[Allocation, int]:
    fields, cursor = _parse_header(source, start, end)
    lines = _VALUE_LINES.require(source, cursor, end)
    values = _parse_values(source, *lines.span())
    reused, cursor = _parse_reuse(source, lines.end(), end)
    return Allocation(values=values, reused_across_colors=reused, **fields), cursor


def _parse_header(source: Source, start: int, end: int) -> tuple[dict[str, Any], int]:
    match = _HEADER.match(source.text, start, end)
    if match is not None:
        number, size, *groups = match.groups()
        index, cursor = parse_allocation_index(number), match.end()
        fields = _attribute_fields(groups)
    else:
        index, cursor = parse_number(source, start, end)
        exact = _EXACT_SIZE.require(source, cursor, end)
        size = exact[1]
        attributes, cursor = parse_attributes(source, exact.end(), end)
        fields = asdict(attributes)
    return {"index": index, "size": parse_byte_count(size), **fields}, cursor


def parse_number(source: Source, start: int, end: int) -> tuple[AllocationIndex, int]:
    """The number of `allocation N: size `, and the offset of the size."""
    match = _NUMBER.require(source, start, end)
    return parse_allocation_index(match[1]), match.end()


def parse_attributes(source: Source, start: int, end: int) -> tuple[AllocationAttributes, int]:
    """The attributes of a header up to the end of its line; unknown ones are kept as text."""
    cursor, latest = start, -1
    found: dict[str, re.Match[str]] = {}
    unknown: list[UnknownAttribute] = []
    while (any_attribute := _UNKNOWN.match(source.text, cursor, end)) is not None:
        name, known = _known_at(source, cursor, end)
        if known is None:
            text = any_attribute.group().removeprefix(", ")
            unknown.append(UnknownAttribute(text=text, position=len(found)))
        elif _NAMES.index(name) <= latest:
            span = Span(cursor + 2, known.end())
            raise ParseError(source, span, "attribute is repeated or out of order")
        else:
            found[name], latest = known, _NAMES.index(name)
        cursor = (known or any_attribute).end()
    cursor = _HEADER_END.require(source, cursor, end).end()
    groups: list[str | None] = []
    for name, pattern in _attribute_patterns().items():
        groups += found[name].groups() if name in found else [None] * pattern.groups
    return AllocationAttributes(unknown=tuple(unknown), **_attribute_fields(groups)), cursor


@cache
def _attribute_patterns() -> dict[str, re.Pattern[str]]:
    """Compiled on first use: writing does not need them."""
    return {name: re.compile(rf"{pattern}(?=, |:\n)") for name, pattern in _ATTRIBUTES.items()}


def _known_at(source: Source, cursor: int, end: int) -> tuple[str, re.Match[str] | None]:
    for name, pattern in _attribute_patterns().items():
        match = pattern.match(source.text, cursor, end)
        if match is not None:
            return name, match
    return "", None


def _attribute_fields(groups: list[Any]) -> dict[str, Any]:
    color, page, number, shape, index, output, *flags = groups
    parameter = None
    if number is not None:
        number, index = parse_parameter_number(number), parse_index(index) or ()
        parameter = Parameter(number=number, shape=shape, index=index)
    return {
        "color": parse_color(color or "0"),
        "page": None if page is None else int(page),
        "parameter": parameter,
        "output_shape": output,
        **{name: flag is not None for name, flag in zip(_FLAGS, flags, strict=True)},
    }


def _parse_values(source: Source, start: int, end: int) -> tuple[AssignedValue, ...]:
    return _assigned_values(
        [
            (
                parse_value_id(id_),
                name,
                parse_index(index) if index else None,
                phi != "",
                parse_color(color) if color else None,
                parse_byte_count(size),
                parse_offset(offset),
                shape,
            )
            for id_, name, index, phi, color, size, offset, shape in _VALUE.find_lines(
                source, start, end
            )
        ]
    )


def _assigned_values(rows: Sequence[tuple[Any, ...]]) -> tuple[AssignedValue, ...]:
    return tuple(
        [
            AssignedValue(
                id=id_,
                name=name,
                index=index,
                is_phi=is_phi,
                color=color,
                size=size,
                offset=offset,
                shape=shape,
            )
            for id_, name, index, is_phi, color, size, offset, shape in rows
        ]
    )


def _parse_reuse(source: Source, start: int, end: int) -> tuple[tuple[Value, ...] | None, int]:
    if not source.text.startswith(_REUSE_TITLE, start, end):
        return None, start
    cursor, values = start + len(_REUSE_TITLE), []
    while source.text.startswith("  value:", cursor, end):
        match = _REUSE.require(source, cursor, end)
        *groups, color = match.groups()
        values.append(value_of(groups))
        if values[-1].color != int(color):
            raise ParseError(source, Span(*match.span(6)), "the value itself has another colour")
        cursor = match.end()
    return tuple(values), cursor


def value_of(groups: Sequence[Any]) -> Value:
    id_, name, index, phi, color = groups
    return Value(
        id=parse_value_id(id_),
        name=name,
        index=parse_index(index or ""),
        is_phi=bool(phi),
        color=parse_color(color) if color else None,
    )


def format(assignment: Assignment, *, pages: bool = True) -> str:  # noqa: A001 - the opposite of parse
    """XLA's text; without `pages`, that of an XLA that does not print them."""
    parts = [TITLE]
    for allocation in assignment.allocations:
        attributes = format_attributes(allocation, pages=pages)
        parts.append(format_header(allocation.index, allocation.size, attributes))
        parts += [
            format_assigned_value(format_value(v), (v.offset, v.size), v.shape)
            for v in allocation.values
        ]
        if allocation.reused_across_colors is not None:
            parts.append(_REUSE_TITLE)
            parts += [
                f"  value: {format_value(v)} (color={v.color})\n"
                for v in allocation.reused_across_colors
            ]
    return "".join(parts)


def format_header(index: AllocationIndex, size: ByteCount | str, attributes: str) -> str:
    """The first line of an allocation; the size is text in a usage report."""
    return f"allocation {index}: size {size}{attributes}:\n"


def format_assigned_value(name: str, slice_: tuple[Offset, ByteCount], shape: str) -> str:
    """The line of a value in an allocation, from its offset and size."""
    offset, size = slice_
    return f" value: {name} (size={size},offset={offset}): {shape}\n"


def format_value(value: Value) -> str:
    return format_name(value.id, value.name, value.index, value.is_phi, value.color)


def format_name(
    id_: ValueId, name: str, index: ShapeIndex | None, is_phi: bool, color: Color | None
) -> str:
    """`<12 while.5{1} (phi) @0>` (XLA: HloValue::ToShortString)."""
    if index is None and not is_phi and color is not None:  # the usual case
        return f"<{id_} {name} @{color}>"
    phi = " (phi)" if is_phi else ""
    at = "" if color is None else f" @{color}"
    return f"<{id_} {name}{format_index(index)}{phi}{at}>"


def format_attributes(attributes: AllocationAttributes, *, pages: bool = True) -> str:
    """The header of an allocation between size and colon (XLA: ToShortString)."""
    known: list[str] = []
    if attributes.color:
        known.append(f", color {attributes.color}")
    if attributes.page is not None:
        known.append(f", page {attributes.page}" if pages else "")
    if (parameter := attributes.parameter) is not None:
        index = format_index(parameter.index)
        known.append(
            f", parameter {parameter.number}, shape |{parameter.shape}| at ShapeIndex {index}"
        )
    if attributes.output_shape is not None:
        known.append(f", output shape is |{attributes.output_shape}|")
    known += [word for name, word in _FLAGS.items() if getattr(attributes, name)]
    for passed, unknown in enumerate(attributes.unknown):
        known.insert(unknown.position + passed, f", {unknown.text}")
    return "".join(known)
