"""Values that repeat another value: moved, compressed, copied or converted by XLA.

A moved value keeps its role: an activation that leaves VMEM is an activation in HBM. A copy within
a memory space has the role of a copy, though the line of its source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.named_tuples import NamedTuple
from hlomem.base.patterns import lazy_pattern
from hlomem.hlo.opcodes import SAME_DATA, Opcode
from hlomem.report.data import roles

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.view.instruction_line import PrintedInstruction
    from hlomem.view.joined import JoinedDump, PlacedValue

_COMPRESSED = lazy_pattern(r"\.remat_(un)?compressed(?:\.\d+)?$")
"""The names that `HloRematerialization` gives copies to and from a denser layout."""


class Movement(NamedTuple):
    source: PlacedValue
    """The repeated value."""
    how: str
    """`moved from vmem to hbm`."""
    keeps_role: bool
    """Whether it has the role of its source."""


class Movements:
    def __init__(self, joined: JoinedDump, space_name: Callable[[int], str]) -> None:
        self._joined = joined
        self._space_name = space_name

    def find(self, placed: PlacedValue) -> Movement | None:
        """The value that a value repeats; None if it is computed."""
        value = placed.value
        text = self._joined.printed.get(value.name)
        if text is None or not may_repeat(value.name, text.opcode):
            return None
        if value.is_phi or value.shape.startswith("("):
            return None
        source = self._source(placed, text)
        if source is None:
            return None
        here, there = placed.allocation.color, source.allocation.color
        if here != there:
            how = f"moved from {self._space_name(there)} to {self._space_name(here)}"
            return Movement(source, how, keeps_role=True)
        if found := _COMPRESSED.search(placed.value.name):
            how = "decompressed" if found[1] else "kept compressed"
            return Movement(source, f"{how} by XLA's rematerialization", keeps_role=True)
        if text.opcode == "convert":
            is_argument = source.allocation.parameter is not None
            is_xlas = not text.op_name
            return Movement(source, "converted", keeps_role=is_xlas and not is_argument)
        return Movement(source, "copied", keeps_role=False)

    def _source(self, placed: PlacedValue, text: PrintedInstruction) -> PlacedValue | None:
        opcode = text.opcode
        # Each part of a value that is fetched in parts counts as the value.
        is_part = opcode == "slice" or opcode == "dynamic-slice"
        is_data = placed.index == (0,) if opcode == "copy-start" else opcode != "copy-done"
        read = self._joined.read_by.get((placed.value.name, 0), ()) if is_data else ()
        arrays = [operand for index, operand in read if not index and operand is not placed]
        if len(arrays) != 1:
            return None
        stays = placed.allocation.color == arrays[0].allocation.color
        return None if is_part and stays else arrays[0]


def may_repeat(name: str, opcode: Opcode) -> bool:
    """Whether the result of an instruction may repeat its operand."""
    if opcode == "fusion":
        return roles.is_copy(name, opcode)
    if opcode in SAME_DATA:
        return True
    return opcode == "copy-start" or opcode == "slice" or opcode == "dynamic-slice"
