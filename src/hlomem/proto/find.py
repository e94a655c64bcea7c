"""Programs and their plans inside bytes, found by their form.

In: the bytes of an executable or of any message. Out: each HloModuleProto in them with the
BufferAssignmentProto that belongs to it. Where they stand in an executable is nobody's promise and
differs between backends and releases, so no path of fields is assumed: what decodes as a module is
one, and a plan belongs to the module whose instructions it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.proto.wire import BYTES, VARINT, WireError, iter_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.proto.wire import Field

_MAX_DEPTH = 12
_MAX_LEAD = 10
"""Bytes of a length that may stand before an executable's first message."""
_MIN_MODULE = 16


class Span(NamedTuple):
    """A message: a half-open range of bytes."""

    start: int
    end: int


class FoundProgram(NamedTuple):
    """A program, and its plan where there is one."""

    module: bytes
    assignment: bytes | None


def find_programs(data: bytes) -> list[FoundProgram]:
    """The programs in bytes, in their order; each module once."""
    modules, plans = _find_messages(data)
    names_of = {span: _entry_names(data, span) for span in modules}
    found = []
    for span in modules:
        plan = next((each for each in plans if _is_plan_of(data, each, names_of[span])), None)
        assignment = None if plan is None else data[plan.start : plan.end]
        found.append(FoundProgram(data[span.start : span.end], assignment))
    return found


def _find_messages(data: bytes) -> tuple[list[Span], list[Span]]:
    """Modules and plans, from wherever the first message begins."""
    for lead in range(min(_MAX_LEAD, len(data))):
        modules: list[Span] = []
        plans: list[Span] = []
        _walk(data, Span(lead, len(data)), modules, plans)
        if modules:
            return modules, plans
    return [], []


def _walk(data: bytes, whole: Span, modules: list[Span], plans: list[Span]) -> None:
    """Look into every range of bytes that may be a message, outer ones first."""
    waiting = [(whole, 0)]
    while waiting:
        span, depth = waiting.pop()
        fields = _fields_of(data, span)
        if fields is None:
            continue
        if is_module(data, fields):
            modules.append(span)
        elif is_assignment(data, fields):
            plans.append(span)
        elif depth < _MAX_DEPTH:
            inner = [Span(field.value, field.end) for field in fields if field.kind == BYTES]
            waiting += [(each, depth + 1) for each in inner if each.end - each.start >= _MIN_MODULE]
    modules.sort()
    plans.sort()


def _fields_of(data: bytes, span: Span) -> list[Field] | None:
    """The fields of a range of bytes; None where it is no message."""
    try:
        return list(iter_fields(data, span.start, span.end))
    except WireError:
        return None


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
    kinds = {(each.number, each.kind) for each in fields}
    instructions = (each for each in fields if each.number == 2 and each.kind == BYTES)
    return {(2, BYTES), (5, VARINT)} <= kinds and _is_instruction(data, next(instructions))


def _is_instruction(data: bytes, field: Field) -> bool:
    """A name, an opcode, a shape."""
    fields = _fields_of(data, Span(field.value, field.end))
    texts = {each.number: each for each in fields or () if each.kind == BYTES}
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
    return all(_is_allocation(data, each) for each in allocations[:3]) and all(
        _defined_at(data, each) is not None for each in buffers[:3]
    )


def _is_allocation(data: bytes, field: Field) -> bool:
    """An index and a size; index 0 is left out."""
    fields = _fields_of(data, Span(field.value, field.end))
    if fields is None:
        return False
    numbers = {each.number: each.kind for each in fields}
    scalars = {1, 2, 3, 5, 6, 7, 8, 11, 12, 13}
    return all(
        numbers[each] == (VARINT if each in scalars else BYTES)
        for each in numbers
        if each in scalars | {9}
    ) and bool(numbers.keys() & {2, 9, 11})


def _defined_at(data: bytes, field: Field) -> Span | None:
    """Where a logical buffer is defined, in a message of its own; None where it is no buffer."""
    fields = _fields_of(data, Span(field.value, field.end))
    for each in fields or ():
        if each.number == 3 and each.kind == BYTES:
            return Span(each.value, each.end)
    return None


class _Names(NamedTuple):
    """What a plan says of the instructions it places: their names, or since 2023 their numbers."""

    names: frozenset[bytes]
    numbers: frozenset[int]


def _entry_names(data: bytes, module: Span) -> _Names:
    names, numbers = set[bytes](), set[int]()
    for computation in iter_fields(data, *module):
        if computation.number != 3 or computation.kind != BYTES:
            continue
        for instruction in iter_fields(data, computation.value, computation.end):
            if instruction.number != 2 or instruction.kind != BYTES:
                continue
            for field in iter_fields(data, instruction.value, instruction.end):
                if field.number == 1 and field.kind == BYTES:
                    names.add(data[field.value : field.end])
                elif field.number == 35 and field.kind == VARINT:
                    numbers.add(field.value)
    return _Names(frozenset(names), frozenset(numbers))


def _is_plan_of(data: bytes, plan: Span, known: _Names) -> bool:
    """Whether every buffer of a plan is defined by an instruction of the module."""
    return all(_is_defined_in(data, buffer, known) for buffer in _buffers(data, plan))


def _buffers(data: bytes, plan: Span) -> Iterator[Span]:
    for field in iter_fields(data, *plan):
        if field.number == 1 and field.kind == BYTES:
            where = _defined_at(data, field)
            if where is not None:
                yield where


def _is_defined_in(data: bytes, location: Span, known: _Names) -> bool:
    fields = _fields_of(data, location)
    for field in fields or ():
        if field.number == 2 and field.kind == BYTES:
            return data[field.value : field.end] in known.names
        if field.number == 4 and field.kind == VARINT:
            return field.value in known.numbers
    return False
