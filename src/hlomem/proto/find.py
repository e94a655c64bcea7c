"""Programs and their plans inside bytes, found by their form.

Their position in an executable differs between backends and releases, so that no path of fields is
assumed: a plan belongs to the module whose instructions it names. Only profiles, whose events are
many, are entered by path.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.errors import InputError
from hlomem.proto.schema import parse_message, parser_of
from hlomem.proto.wire import BYTES, VARINT, Field, WireError, iter_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_MAX_DEPTH = 12
_MAX_LEAD = 10
"""Bytes of a length that may stand before an executable's first message."""
_MIN_MODULE = 16
_MAX_FIELDS = 1_000_000
"""How many fields are looked at, from the outermost inwards, before the search ends."""
_MAX_TRIED = 64
"""How many plans near a module are compared with it; a plan follows its module."""
_ID_BITS = 32
"""The lower half of an id numbers the instructions of a computation."""
_METADATA_PLANE = b"/host:metadata"
"""The part of a profile that holds its programs."""


class Span(NamedTuple):
    start: int
    end: int


class FoundProgram(NamedTuple):
    name: str
    module: bytes
    assignment: Any
    """The BufferAssignmentProto, a message of `schema`; None without a plan."""


def find_programs(data: bytes) -> list[FoundProgram]:
    modules, plans = _find_messages(data)
    unused = [(span, _Needed(plan)) for span, plan in _parsed("BufferAssignment", data, plans)]
    found = []
    for span, module in _parsed("ModuleHead", data, modules):
        heads = _Heads(module)
        near = islice(_nearest(span, [plan for plan, _ in unused]), _MAX_TRIED)
        number = next((number for number in near if heads.define(unused[number][1])), None)
        plan = None if number is None else unused.pop(number)[1].plan
        found.append(FoundProgram(module.name, data[slice(*span)], plan))
    return found


def _parsed(name: str, data: bytes, spans: list[Span]) -> Iterator[tuple[Span, Any]]:
    """The messages in ranges of bytes that look like them; those that only look so are left out."""
    for span in spans:
        with suppress(InputError):
            yield span, parse_message(name, data[slice(*span)])


def _nearest(module: Span, plans: list[Span]) -> Iterator[int]:
    """The numbers of plans, those after a module first; ids repeat in other programs."""
    after = bisect_left(plans, module.end, key=lambda plan: plan.start)
    return chain(range(after, len(plans)), range(after - 1, -1, -1))


class _Needed:
    """The instructions that a plan's buffers are defined by: ids, before 2023 names."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        defined = [buffer.defined_at for buffer in plan.logical_buffers]
        self.names = {place.instruction_name for place in defined if place.instruction_name}
        self.ids = {place.instruction_id for place in defined if not place.instruction_name}
        self.owners = {number >> _ID_BITS for number in self.ids}
        """Since 2025 an id tells the computation."""


class _Heads:
    def __init__(self, module: Any) -> None:
        self._computations = {computation.id: computation for computation in module.computations}
        self._known: dict[int, tuple[set[int], set[str]]] = {}

    def define(self, needed: _Needed) -> bool:
        ids, names = needed.ids, needed.names
        owners: Iterable[int] = needed.owners
        if names or not needed.owners <= self._computations.keys():
            owners = self._computations
        known = [self._of(owner) for owner in owners]
        if len(known) == 1:
            return ids <= known[0][0] and names <= known[0][1]
        return ids <= set().union(*(part[0] for part in known)) and names <= set().union(
            *(part[1] for part in known)
        )

    def _of(self, owner: int) -> tuple[set[int], set[str]]:
        if owner not in self._known:
            parse = parser_of("InstructionHead")
            heads = [parse(data) for data in self._computations[owner].instructions]
            self._known[owner] = {head.id for head in heads}, {head.name for head in heads}
        return self._known[owner]


def has_plan(data: bytes) -> bool:
    """Whether there is a plan in bytes, with its program or without."""
    return bool(_find_messages(data, wants=_PLANS)[1])


_MODULES, _PLANS = 0, 1


def _find_messages(data: bytes, wants: int = _MODULES) -> tuple[list[Span], list[Span]]:
    """Modules and plans, from wherever the first message begins."""
    search = _Search(data)
    for lead in range(min(_MAX_LEAD, len(data))):
        found = search.walk(search.spans_of_profile() if lead == 0 else [], lead)
        if found[wants]:
            return found
    return [], []


class _Search:
    """A search that looks at no more than so many fields."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = _MAX_FIELDS

    def fields_of(self, start: int, end: int) -> list[Field] | None:
        """The fields of a range of bytes; None where it is not a message, or is too much."""
        try:
            fields = list(islice(iter_fields(self._data, start, end), max(self._left, 0) + 1))
        except WireError:
            self._left -= 1
            return None
        self._left -= 1 + len(fields)
        return fields if self._left >= 0 else None

    def walk(self, starts: list[Span], lead: int) -> tuple[list[Span], list[Span]]:
        """Look into every range of bytes that may be a message, outer ones first, for a while."""
        found: tuple[list[Span], list[Span]] = [], []
        waiting = deque((start, 0) for start in starts or [Span(lead, len(self._data))])
        while waiting and self._left > 0:
            span, depth = waiting.popleft()
            fields = self.fields_of(*span)
            if fields is None:
                continue
            if self._is_module(fields):
                found[_MODULES].append(span)
            elif self._is_assignment(fields):
                found[_PLANS].append(span)
            elif depth < _MAX_DEPTH:
                inner = [Span(field.value, field.end) for field in fields if field.kind == BYTES]
                waiting.extend(
                    (part, depth + 1) for part in inner if part.end - part.start >= _MIN_MODULE
                )
        return sorted(found[_MODULES]), sorted(found[_PLANS])

    def spans_of_profile(self) -> list[Span]:
        """A profile's programs (XSpace), without its events, of which there are many."""
        spans = []
        for plane in self._messages(Span(0, len(self._data)), 1):
            names = [self._data[slice(*name)] for name in self._messages(plane, 2)]
            if names == [_METADATA_PLANE]:
                spans += self._messages(plane, 4)
        return spans

    def _messages(self, span: Span, number: int) -> list[Span]:
        """The fields of a number that may be messages; empty where the bytes are not a message."""
        return [
            Span(field.value, field.end)
            for field in self.fields_of(*span) or ()
            if field.kind == BYTES and field.number == number
        ]

    def _is_module(self, fields: list[Field]) -> bool:
        """Whether these are the fields of an HloModuleProto: a name, an entry, computations."""
        computations = [field for field in fields if field.number == 3 and field.kind == BYTES]
        has_names = {1, 2} <= {field.number for field in fields if field.kind == BYTES}
        if not (has_names and computations and self._is_text(fields[0])):
            return False
        return all(self._is_computation(field) for field in computations[:2])

    def _is_computation(self, field: Field) -> bool:
        fields = self.fields_of(field.value, field.end)
        if not fields or not self._is_text(fields[0]):
            return False
        instructions = (part for part in fields if part.number == 2 and part.kind == BYTES)
        first = next(instructions, None)
        return first is not None and self._is_instruction(first)

    def _is_instruction(self, field: Field) -> bool:
        """A name, an opcode, a shape."""
        fields = self.fields_of(field.value, field.end)
        texts = {part.number: part for part in fields or () if part.kind == BYTES}
        return {1, 2, 3} <= texts.keys() and all(self._is_text(texts[number]) for number in (1, 2))

    def _is_text(self, field: Field) -> bool:
        if field.kind != BYTES or field.end == field.value:
            return False
        data = self._data
        return data[field.value : field.end].isascii() and data[field.value] > ord(" ")

    def _is_assignment(self, fields: list[Field]) -> bool:
        """Whether these are a BufferAssignmentProto's fields: buffers, aliases, allocations."""
        if not {1, 3} <= {field.number for field in fields}:
            return False
        if any(field.kind != BYTES or field.number > 5 for field in fields):
            return False
        allocations = [field for field in fields if field.number == 3]
        buffers = [field for field in fields if field.number == 1]
        return all(map(self._is_allocation, allocations[:3])) and all(
            map(self._is_buffer, buffers[:3])
        )

    def _is_allocation(self, field: Field) -> bool:
        """Numbers and places; what is 0 is left out, so that an empty one may say nothing."""
        fields = self.fields_of(field.value, field.end)
        return fields is not None and all(
            _KIND_IN_ALLOCATION.get(field.number) in (None, field.kind) for field in fields
        )

    def _is_buffer(self, field: Field) -> bool:
        fields = self.fields_of(field.value, field.end) or ()
        return any(part.number == 3 and part.kind == BYTES for part in fields)


_KIND_IN_ALLOCATION = {9: BYTES, **dict.fromkeys((1, 2, 3, 5, 6, 7, 8, 11, 12, 13), VARINT)}
