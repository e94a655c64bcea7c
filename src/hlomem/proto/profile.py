"""The events of a profile (XSpace of `tsl/profiler/protobuf/xplane.proto`), thread by thread.

In: the bytes of a profile. Out: the threads of a plane, one after another, each with its events
sorted as they nest. A profile may hold millions of events; one thread at a time is decoded, and the
facts of an event (its stats) when they are asked for. Where the file is cut off, the planes before
the cut are read and `Profile.is_cut` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from hlomem.base.errors import InputError, OtherKindError
from hlomem.proto.schema import parser_of
from hlomem.proto.wire import BYTES, Field, WireError, iter_fields, read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "/host:CPU"
"""The plane of the host's threads."""
_PLANE, _PLANE_NAME = 1, 2
_PICOSECONDS = 1000
"""Of a nanosecond."""

Fact: TypeAlias = int | float | str


class TimedEvent(NamedTuple):
    """An event of a thread; times are picoseconds since the trace began."""

    start: int
    end: int
    name: str
    message: Any
    """Its ProfileEvent, for `Plane.facts`."""


class Thread(NamedTuple):
    """A line of a plane."""

    number: int
    name: str
    events: list[TimedEvent]
    """By their start; of those that begin together the longest first, so that they nest."""


class Plane:
    """A part of a profile: the threads of the host, or the streams of a device."""

    def __init__(self, name: str, message: Any) -> None:
        self.name = name
        self._lines = message.lines
        self._event_names = _names(message.event_names)
        self._stat_names = _names(message.stat_names)

    def threads(self) -> Iterator[Thread]:
        """The threads, each decoded when its turn comes."""
        for number, data in enumerate(self._lines):
            line = self._line(data)
            begin = line.timestamp_ns * _PICOSECONDS
            names = self._event_names
            events = [
                TimedEvent(
                    begin + event.offset_ps,
                    begin + event.offset_ps + event.duration_ps,
                    names.get(event.metadata_id, ""),
                    event,
                )
                for event in line.events
            ]
            events.sort(key=lambda event: (event.start, -event.end))
            yield Thread(number, _text(line.name), events)

    def _line(self, data: bytes) -> Any:
        try:
            return parser_of("ProfileLine")(data)
        except InputError as error:
            raise InputError(f"a thread of {self.name} cannot be read") from error

    def facts(self, event: TimedEvent) -> dict[str, Fact]:
        """The facts an event states, by name."""
        return self._values(event.message.stats)

    def _values(self, stats: Any) -> dict[str, Fact]:
        return {self._stat_names.get(stat.metadata_id, ""): self._value(stat) for stat in stats}

    def _value(self, stat: Any) -> Fact:
        if stat.HasField("ref_value"):
            return self._stat_names.get(stat.ref_value, "")
        for field in ("int64_value", "uint64_value", "double_value"):
            if stat.HasField(field):
                number: int | float = getattr(stat, field)
                return number
        return _text(stat.str_value)


class Profile:
    """A profile, of which a plane is read when it is asked for."""

    def __init__(self, data: bytes, name: str) -> None:
        self.name = name
        self._data = data
        self._planes, self.is_cut = _find_planes(data)
        if not self._planes:
            problem = "no profile of XLA (.xplane.pb), or it is cut off or damaged"
            raise OtherKindError(f"{name}: {problem}")

    def plane(self, name: str) -> Plane | None:
        """The first plane of a name; None where there is none."""
        for found, span in self._planes:
            if found == name:
                try:
                    message = parser_of("ProfilePlane")(self._data[span.value : span.end])
                except InputError as error:
                    raise InputError(f"{self.name}: the plane {name} is damaged") from error
                return Plane(name, message)
        return None


def _find_planes(data: bytes) -> tuple[list[tuple[str, Field]], bool]:
    """The planes of a profile, and whether the bytes end before their message does."""
    found: list[tuple[str, Field]] = []
    try:
        for field in iter_fields(data):
            if field.number == _PLANE and field.kind == BYTES:
                name = _plane_name(data, field)
                if name is not None:
                    found.append((name, field))
    except WireError:
        return found, True
    return found, False


def _plane_name(data: bytes, plane: Field) -> str | None:
    """The name of a plane: one of its first fields, so that the rest need not be read."""
    start = plane.value
    try:
        while start < plane.end:
            tag, start = read_varint(data, start, plane.end)
            value, start = read_varint(data, start, plane.end)
            if tag == _PLANE_NAME << 3 | BYTES:
                return _text(data[start : start + value])
            if tag & 7 != 0:
                return None
    except WireError:
        return None
    return None


def _names(entries: Any) -> dict[int, str]:
    return {entry.key: _text(entry.value.name) for entry in entries}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
