"""Which instruction tells where a value comes from.

In: the values of a dump, those that share one storage, and their roles in loops. Out: for each
value the text of the instruction whose metadata names its operation and its line. What a loop hands
on says nothing about it; whoever computes it does. What a loop stacks is written by an update that
carries the line of the loop; what it writes comes from the line that matters. What XLA adds itself,
a copy or a conversion, has no name: it is told by what it copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.report import roles
from hlomem.report.lines import op_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hlomem.check.plan import Placed, Plan

_UPDATE = "dynamic_update_slice"
_SAME_VALUE = frozenset({"copy", "copy-start", "convert", "bitcast", "transpose", "reshape"})
_HOPS = 4
"""How many copies of copies are followed."""


class Origin(NamedTuple):
    """The instruction that speaks for a value, and the name of its operation."""

    instruction: str
    op_name: str | None


class Origins:
    """Finds the instruction that speaks for each value."""

    def __init__(
        self,
        plan: Plan,
        families: Mapping[Placed, Sequence[Placed]],
        loop_roles: Mapping[Placed, str],
    ) -> None:
        self._plan = plan
        self._families = families
        self._loop_roles = loop_roles

    def find(self, placed: Placed) -> Origin:
        """The instruction; empty where the dump has none."""
        if self._loop_roles.get(placed) == roles.STACKED and (found := self._written(placed)):
            return found
        return self._computed(placed)

    def _computed(self, placed: Placed, hops: int = _HOPS) -> Origin:
        """Who computes a value: the first with a name, where loops and copies hand it on."""
        makers = self._makers(placed) if placed.value.is_phi else [placed]
        for each in makers:
            if each.used and (name := op_name(each.used.instruction)):
                return Origin(each.used.instruction, name)
        for each in self._handed_on(makers) if hops else ():
            if (found := self._computed(each, hops - 1)).op_name:
                return found
        return Origin(makers[0].used.instruction if makers[0].used else "", None)

    def _makers(self, phi: Placed) -> list[Placed]:
        """The values that meet in one that is made where they meet."""
        family = self._families.get(phi, ())
        return [each for each in family if each.used and not each.value.is_phi] or [phi]

    def _handed_on(self, makers: Iterable[Placed]) -> Iterator[Placed]:
        """What instructions without a name, that only copy or convert, read."""
        for each in makers:
            text = self._plan.text_of.get(each.value.name)
            if text is not None and text.opcode in _SAME_VALUE:
                yield from (read for _, read in self._plan.read_by.get((each.value.name, 0), ()))

    def _written(self, placed: Placed) -> Origin | None:
        """What computes the slices of a stacked value; None where the update tells itself."""
        family = self._families.get(placed, (placed,))
        for writer in family:
            text = self._plan.text_of.get(writer.value.name)
            if text is None or not (op_name(text.tail) or "").endswith(_UPDATE):
                continue
            read = [
                value
                for number in range(len(text.operands))
                for _, value in self._plan.read_by.get((writer.value.name, number), ())
                if value not in family and 1 < value.value.size < writer.value.size
            ]
            for value in sorted(read, key=lambda each: (-each.value.size, each.id)):
                if (found := self._computed(value)).op_name:
                    return found
        return None
