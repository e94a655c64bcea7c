"""Which instruction tells where a value comes from.

In: the values of a dump, those that share one storage, and their roles in loops. Out: for each
value the text of the instruction whose metadata names its operation and its line. What a loop hands
on says nothing about it; whoever computes it does. What a loop stacks is written by an update that
carries the line of the loop; what it writes comes from the line that matters. What XLA adds itself,
a copy or a conversion, has no name: it is told by what it copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report.data import roles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hlomem.report.data.lines import Lines, Origin
    from hlomem.view.joined import JoinedDump, PlacedValue

_UPDATE = "dynamic_update_slice"
_SAME_VALUE = frozenset({"copy", "copy-start", "convert", "bitcast", "transpose", "reshape"})
_HOPS = 4
"""How many copies of copies are followed."""


class Origins:
    """What the instruction that speaks for each value says."""

    def __init__(
        self,
        joined: JoinedDump,
        lines: Lines,
        families: Mapping[PlacedValue, Sequence[PlacedValue]],
        loop_roles: Mapping[PlacedValue, str],
    ) -> None:
        self._joined = joined
        self._lines = lines
        self._families = families
        self._loop_roles = loop_roles

    def find(self, placed: PlacedValue) -> Origin:
        """What that instruction says; nothing where the dump has none."""
        if self._loop_roles.get(placed) == roles.STACKED and (found := self._written(placed)):
            return found
        return self._computed(placed)

    def _computed(self, placed: PlacedValue, hops: int = _HOPS) -> Origin:
        """Who computes a value: the first with a name, where loops and copies hand it on."""
        if not placed.value.is_phi and (found := self._said(placed)).op_name:
            return found
        makers = self._makers(placed) if placed.value.is_phi else [placed]
        said = [self._said(each) for each in makers]
        if hops and not any(each.op_name for each in said):
            said += [self._computed(each, hops - 1) for each in self._handed_on(makers)]
        return next((each for each in said if each.op_name), said[0])

    def _said(self, placed: PlacedValue) -> Origin:
        """What a value's own instruction says."""
        return self._lines.origin(placed.used.instruction if placed.used else "")

    def _makers(self, phi: PlacedValue) -> list[PlacedValue]:
        """The values that meet in one that is made where they meet."""
        family = self._families.get(phi, ())
        return [each for each in family if each.used and not each.value.is_phi] or [phi]

    def _handed_on(self, makers: Iterable[PlacedValue]) -> Iterator[PlacedValue]:
        """What instructions without a name, that only copy or convert, read."""
        for each in makers:
            text = self._joined.printed.get(each.value.name)
            if text is not None and text.opcode in _SAME_VALUE:
                yield from (read for _, read in self._joined.read_by.get((each.value.name, 0), ()))

    def _written(self, placed: PlacedValue) -> Origin | None:
        """What computes the slices of a stacked value; None where the update tells itself."""
        family = self._families.get(placed, (placed,))
        for writer in family:
            text = self._joined.printed.get(writer.value.name)
            if text is None or not text.metadata.op_name.endswith(_UPDATE):
                continue
            read = [
                value
                for number in range(len(text.operands))
                for _, value in self._joined.read_by.get((writer.value.name, number), ())
                if value not in family and 1 < value.value.size < writer.value.size
            ]
            for value in sorted(read, key=lambda each: (-each.value.size, each.id)):
                if (found := self._computed(value)).op_name:
                    return found
        return None
