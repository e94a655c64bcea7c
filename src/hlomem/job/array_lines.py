"""The lines at which arrays were made, by a device memory profile.

In: what `hlomem.proto.pprof` read. Out: lines by the size of an array. A memory profile has neither
addresses nor shapes: two arrays of one size are told apart by nothing, and the line that made most
of them is taken.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hlomem.report.data.lines import Frame, users_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hlomem.proto.pprof import Frame as PprofFrame
    from hlomem.proto.pprof import Holding

UNKNOWN = "(no line)"
BUFFER, EXECUTABLE = "buffer", "executable"


def line_of(stack: Iterable[PprofFrame]) -> str:
    """The line of the user's code on a stack, innermost call first."""
    frame = users_frame(tuple(Frame(file, line, function) for function, file, line in stack))
    return UNKNOWN if frame is None else frame.location


class ArrayLines:
    """The lines of the arrays of a memory profile, and of arrays whose addresses are known."""

    def __init__(
        self, holdings: Iterable[Holding], by_address: Mapping[int, str] | None = None
    ) -> None:
        self._by_address = dict(by_address or {})
        self._by_size: dict[int, Counter[str]] = {}
        self._sums: Counter[str] = Counter()
        for holding in holdings:
            if holding.kind == EXECUTABLE or holding.count <= 0:
                continue
            line = line_of(holding.stack)
            unit, rest = divmod(holding.size, holding.count)
            if not rest:
                self._by_size.setdefault(unit, Counter())[line] += holding.count
            self._sums[line] += holding.size

    def line_of(self, size: int, address: int | None = None) -> str | None:
        """The line of the array at an address, else the one that made most arrays of a size."""
        if address in self._by_address:
            return self._by_address[address]
        found = self._by_size.get(size)
        if not found:
            return None
        line = min(found, key=lambda name: (-found[name], name))
        return None if line == UNKNOWN else line

    def sizes_by_line(self) -> list[tuple[str, int]]:
        """Bytes by line, most first."""
        return sorted(self._sums.items(), key=lambda pair: (-pair[1], pair[0]))
