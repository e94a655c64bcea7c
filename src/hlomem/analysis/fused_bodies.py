"""What the bodies of fusions hold, read off their text without opening them.

Most instructions of an optimised module are inside fusions, where they matter little: their values
take ids, and a body may write in place. Both are known from the opcodes alone, and those from one
regular expression per body.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hlomem.analysis.definitions import NOTHING, count_defined

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.hlo.ir import HloComputation, HloModule

_ARRAY_OPCODE = re.compile(
    r"^  (?:ROOT )?\S+ = [^\s(]\S* ([a-z][\w\-]*)\(", re.ASCII | re.MULTILINE
)


class Body(NamedTuple):
    """The text of a computation between its braces."""

    start: int
    end: int


class FusedBody(NamedTuple):
    """What is known of a body from its opcodes."""

    value_count: int
    opcodes: frozenset[str]


def find_bodies(module: HloModule) -> dict[HloComputation, Body] | None:
    """Where the bodies lie; None unless the text is laid out as XLA prints it."""
    text = module.source.text
    bodies: dict[HloComputation, Body] = {}
    end = 0
    for computation in module.computations:
        start = text.find("{\n", end)
        end = text.find("\n}", start)
        if start < 0 or end < 0:
            return None
        bodies[computation] = Body(start + 1, end)
    return bodies if text.find("\n}", end + 2) < 0 else None


class FusedBodies:
    """The bodies of the fusions of one module, looked at when asked about."""

    def __init__(self, module: HloModule) -> None:
        self._text = module.source.text
        self._known: dict[HloComputation, FusedBody] = {}
        self.places = find_bodies(module)
        """Where the bodies of all computations lie, if the text is laid out as XLA prints it."""
        if self.places is None:
            module.open_all()

    def __getitem__(self, computation: HloComputation) -> FusedBody:
        known = self._known.get(computation)
        if known is None:
            known = self._known[computation] = self._read(computation)
        return known

    def search(
        self, pattern: re.Pattern[str], computation: HloComputation
    ) -> Iterator[re.Match[str]]:
        """The matches of a pattern in the text of a body."""
        assert self.places is not None, "else every computation is open"
        return pattern.finditer(self._text, *self.places[computation])

    def _read(self, computation: HloComputation) -> FusedBody:
        if self.places is not None:
            start, end = self.places[computation]
            opcodes = _ARRAY_OPCODE.findall(self._text, start, end)
            if len(opcodes) == self._text.count("\n", start, end):
                different = frozenset(opcodes)
                count = len(opcodes)
                if not different.isdisjoint(NOTHING):
                    count -= sum(opcode in NOTHING for opcode in opcodes)
                return FusedBody(count, different)
        # Some results are tuples: their shapes must be read.
        outline = computation.outline()
        return FusedBody(
            sum(count_defined(shape, opcode) for shape, opcode in outline),
            frozenset(opcode for _, opcode in outline),
        )
