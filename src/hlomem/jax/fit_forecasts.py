"""Forecasts of a search: the largest value that will fit, from programs XLA has planned."""

from __future__ import annotations

from hashlib import sha256
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from hlomem.api.scale import scale
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import HlomemError
from hlomem.base.json_bytes import decode_json

if TYPE_CHECKING:
    from pathlib import Path

    from hlomem.api.scale import ScaledProgram
    from hlomem.jax.compile.parent import PlannedProgram


def _keep(file: Path, known: Struct) -> None:
    write_files(file.parent, {file.name: [msgspec.json.encode(known)]}, force=True)


class KnownForecast(Struct, frozen=True):
    """A forecast that is kept."""

    largest: int


class _Point(NamedTuple):
    value: int
    fingerprint: str
    size: int


class Forecasts:
    """The programs of one search; hlomem's plans of them predict, where they match XLA's."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._programs: dict[str, PlannedProgram] = {}
        self._points: list[_Point] = []
        self._grown: dict[tuple[_Point, _Point], ScaledProgram | None] = {}
        self.has_told = False
        """Whether a value was predicted from plans, and not by a line through them."""

    def add(self, fingerprint: str, program: PlannedProgram) -> None:
        """Note a program that XLA has planned just now."""
        self._programs[fingerprint] = program

    def note(self, value: int, fingerprint: str, size: int) -> None:
        """Note the bytes of a plan, made now or known from before."""
        self._points.append(_Point(value, fingerprint, size))

    def predict(self, limit: int, step: int) -> int | None:
        """The largest value by the nearest programs that tell it; None where it is unknown."""
        nearest = sorted(self._points, key=lambda point: abs(point.size - limit))
        pairs = sorted(combinations(range(len(nearest)), 2), key=sum)
        told = (self._by_pair(nearest[i], nearest[j], nearest[0], limit, step) for i, j in pairs)
        found = next((largest for largest in told if largest is not None), None)
        self.has_told = self.has_told or found is not None
        return found

    def _by_pair(
        self, one: _Point, other: _Point, third: _Point, limit: int, step: int
    ) -> int | None:
        """The same by two programs, which have to tell the bytes of a third; kept, once found."""
        one, other = sorted((one, other))
        words = f"{one} {other} {third} {limit} {step}"
        file = self._cache / f"{sha256(words.encode()).hexdigest()}.forecast.json"
        try:
            return decode_json(file.read_bytes(), KnownForecast).largest
        except (OSError, msgspec.MsgspecError):
            largest = self._predict(one, other, third, limit, step)
        if largest is not None:
            _keep(file, KnownForecast(largest))
        return largest

    def _predict(
        self, one: _Point, other: _Point, third: _Point, limit: int, step: int
    ) -> int | None:
        if (one, other) not in self._grown:
            self._grown[one, other] = self._grow(one, other)
        grown = self._grown[one, other]
        if grown is None:
            return None
        try:
            if any(grown.bytes_at(point.value) != point.size for point in (one, other, third)):
                return None
            return grown.largest(limit, step).largest or None
        except HlomemError:
            return None

    def _grow(self, one: _Point, other: _Point) -> ScaledProgram | None:
        """The program that two values have; None where it is not known, or not the same."""
        first, second = (self._programs.get(point.fingerprint) for point in (one, other))
        if first is None or second is None:
            return None
        sizes = one.value, other.value
        try:
            return scale(first.dump, second.dump, sizes=sizes, backend=first.target.machine)
        except HlomemError:
            return None
