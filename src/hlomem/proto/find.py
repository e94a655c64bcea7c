"""Programs and their plans inside bytes, found by their form.

In: the bytes of an executable or of any message. Out: each HloModuleProto in them with the
BufferAssignmentProto that belongs to it. Where they stand in an executable is nobody's promise and
differs between backends and releases, so no path of fields is assumed: what decodes as a module is
one, and a plan belongs to the module whose instructions it names. Only profiles are entered by
path: their events would take long to look through.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.errors import InputError
from hlomem.proto.schema import parse_message, parser_of
from hlomem.proto.wire import BYTES, VARINT, WireError, iter_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.proto.wire import Field

_MAX_DEPTH = 12
_MAX_LEAD = 10
"""Bytes of a length that may stand before an executable's first message."""
_MIN_MODULE = 16
_MAX_FIELDS = 2_000_000
"""How many fields are looked at, from the outermost inwards, before the search ends."""
_ID_BITS = 32
"""The lower half of an id numbers the instructions of a computation."""
_METADATA_PLANE = b"/host:metadata"
"""The part of a profile that holds its programs."""


class Span(NamedTuple):
    """A message: a half-open range of bytes."""

    start: int
    end: int


class FoundProgram(NamedTuple):
    """A program, and its plan where there is one."""

    name: str
    """The name of its module."""
    module: bytes
    """The HloModuleProto."""
    assignment: Any
    """The BufferAssignmentProto, a message of `schema`; None without a plan."""


def find_programs(data: bytes) -> list[FoundProgram]:
    """The programs in bytes, in their order."""
    modules, plans = _find_messages(data)
    unused = dict(_parsed("BufferAssignment", data, plans))
    found = []
    for span, module in _parsed("ModuleHead", data, modules):
        near = sorted(unused, key=partial(_distance, span))
        place = next((place for place in near if _defines_all(module, unused[place])), None)
        plan = None if place is None else unused.pop(place)
        found.append(FoundProgram(module.name, data[slice(*span)], plan))
    return found


def _parsed(name: str, data: bytes, spans: list[Span]) -> Iterator[tuple[Span, Any]]:
    """The messages in ranges of bytes that look like them; those that only look so are left out."""
    for span in spans:
        with suppress(InputError):
            yield span, parse_message(name, data[slice(*span)])


def _distance(module: Span, plan: Span) -> tuple[bool, int]:
    """How far a plan is from a module; ids repeat in other programs, and plans follow theirs."""
    return plan.start < module.end, abs(plan.start - module.end)


def has_plan(data: bytes) -> bool:
    """Whether there is a plan in bytes, with its program or without."""
    return bool(_find_messages(data, wants=_PLANS)[1])


_MODULES, _PLANS = 0, 1


def _find_messages(data: bytes, wants: int = _MODULES) -> tuple[list[Span], list[Span]]:
    """Modules and plans, from wherever the first message begins."""
    for lead in range(min(_MAX_LEAD, len(data))):
        found = _walk(data, _spans_of_profile(data) if lead == 0 else [], lead)
        if found[wants]:
            return found
    return [], []


def _walk(data: bytes, starts: list[Span], lead: int) -> tuple[list[Span], list[Span]]:
    """Look into every range of bytes that may be a message, outer ones first, for a while."""
    found: tuple[list[Span], list[Span]] = [], []
    waiting = deque((start, 0) for start in starts or [Span(lead, len(data))])
    budget = _MAX_FIELDS
    while waiting and budget > 0:
        span, depth = waiting.popleft()
        fields = _fields_of(data, span)
        budget -= 1 + len(fields or ())
        if fields is None:
            continue
        if is_module(data, fields):
            found[_MODULES].append(span)
        elif is_assignment(data, fields):
            found[_PLANS].append(span)
        elif depth < _MAX_DEPTH:
            inner = [Span(field.value, field.end) for field in fields if field.kind == BYTES]
            waiting.extend(
                (part, depth + 1) for part in inner if part.end - part.start >= _MIN_MODULE
            )
    return sorted(found[_MODULES]), sorted(found[_PLANS])


def _spans_of_profile(data: bytes) -> list[Span]:
    """The places of a profile's programs (XSpace): beside its events, of which there are many."""
    spans = []
    for plane in _messages(data, Span(0, len(data)), 1):
        names = [data[name.start : name.end] for name in _messages(data, plane, 2)]
        if names == [_METADATA_PLANE]:
            spans += _messages(data, plane, 4)
    return spans


def _messages(data: bytes, span: Span, number: int) -> list[Span]:
    """The fields of a number that may be messages; none where the range of bytes is none."""
    fields = _fields_of(data, span) or ()
    return [
        Span(field.value, field.end)
        for field in fields
        if field.kind == BYTES and field.number == number
    ]


def _fields_of(data: bytes, span: Span) -> list[Field] | None:
    """The fields of a range of bytes; None where it is no message."""
    try:
        return list(iter_fields(data, span.start, span.end))
    except WireError:
        return None


def _defines_all(module: Any, plan: Any) -> bool:
    """Whether every buffer of a plan is defined by an instruction of the module.

    A plan calls instructions by id, before 2023 by name. Since 2025 an id tells the computation.
    """
    places = [buffer.defined_at for buffer in plan.logical_buffers]
    names = {place.instruction_name for place in places if place.instruction_name}
    numbers = {place.instruction_id for place in places if not place.instruction_name}
    owners = {number >> _ID_BITS for number in numbers}
    if names or not owners <= {computation.id for computation in module.computations}:
        owners = set()
    parse = parser_of("InstructionHead")
    for computation in module.computations:
        if not owners or computation.id in owners:
            heads = [parse(data) for data in computation.instructions]
            numbers.difference_update([head.id for head in heads])
            names.difference_update([head.name for head in heads])
    return not numbers and not names


def is_module(data: bytes, fields: list[Field]) -> bool:
    """Whether these are the fields of an HloModuleProto: a name, an entry, computations."""
    computations = [field for field in fields if field.number == 3 and field.kind == BYTES]
    has_names = {1, 2} <= {field.number for field in fields if field.kind == BYTES}
    if not (has_names and computations and _is_text(data, fields[0])):
        return False
    return all(_is_computation(data, field) for field in computations[:2])


def _is_computation(data: bytes, field: Field) -> bool:
    fields = _fields_of(data, Span(field.value, field.end))
    if not fields or not _is_text(data, fields[0]):
        return False
    kinds = {(part.number, part.kind) for part in fields}
    instructions = (part for part in fields if part.number == 2 and part.kind == BYTES)
    return (2, BYTES) in kinds and _is_instruction(data, next(instructions))


def _is_instruction(data: bytes, field: Field) -> bool:
    """A name, an opcode, a shape."""
    fields = _fields_of(data, Span(field.value, field.end))
    texts = {part.number: part for part in fields or () if part.kind == BYTES}
    return {1, 2, 3} <= texts.keys() and all(_is_text(data, texts[number]) for number in (1, 2))


def _is_text(data: bytes, field: Field) -> bool:
    """Whether a field is a name: printable text."""
    if field.kind != BYTES or field.end == field.value:
        return False
    return data[field.value : field.end].isascii() and data[field.value] > ord(" ")


def is_assignment(data: bytes, fields: list[Field]) -> bool:
    """Whether these are the fields of a BufferAssignmentProto: buffers, aliases, allocations."""
    if not {1, 3} <= {field.number for field in fields}:
        return False
    if any(field.kind != BYTES or field.number > 5 for field in fields):
        return False
    allocations = [field for field in fields if field.number == 3]
    buffers = [field for field in fields if field.number == 1]
    return all(_is_allocation(data, allocation) for allocation in allocations[:3]) and all(
        _defined_at(data, buffer) is not None for buffer in buffers[:3]
    )


def _is_allocation(data: bytes, field: Field) -> bool:
    """Numbers and places; what is 0 is left out, so that an empty one may say nothing."""
    fields = _fields_of(data, Span(field.value, field.end))
    if fields is None:
        return False
    return all(_KIND_IN_ALLOCATION.get(field.number) in (None, field.kind) for field in fields)


_KIND_IN_ALLOCATION = {9: BYTES, **dict.fromkeys((1, 2, 3, 5, 6, 7, 8, 11, 12, 13), VARINT)}


def _defined_at(data: bytes, field: Field) -> Span | None:
    """The message that says where a logical buffer is defined; None where it is no buffer."""
    fields = _fields_of(data, Span(field.value, field.end))
    for part in fields or ():
        if part.number == 3 and part.kind == BYTES:
            return Span(part.value, part.end)
    return None
