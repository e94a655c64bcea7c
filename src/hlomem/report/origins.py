"""Which instruction tells where a value comes from.

In: the values of a dump, those that share one storage, and their roles in loops. Out: for each
value the text of the instruction whose metadata names its operation and its line. What a loop hands
on says nothing about it; whoever computes it does. What a loop stacks is written by an update that
carries the line of the loop; what it writes comes from the line that matters. What XLA adds itself,
a copy or a conversion, has no name: it is told by what it copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.report import roles
from hlomem.report.lines import op_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hlomem.check.plan import Placed, Plan

_UPDATE = "dynamic_update_slice"
_SAME_VALUE = frozenset({"copy", "copy-start", "convert", "bitcast", "transpose", "reshape"})
_HOPS = 4
"""How many copies of copies are followed."""


class Origins:
    """The instruction that speaks for each value."""

    def __init__(
        self,
        plan: Plan,
        families: Mapping[Placed, Sequence[Placed]],
        loop_roles: Mapping[Placed, str],
    ) -> None:
        self._plan = plan
        self._families = families
        self._loop_roles = loop_roles

    def instruction(self, placed: Placed) -> str:
        """The text of the instruction; empty where the dump has none."""
        if self._loop_roles.get(placed) == roles.STACKED and (text := self._written(placed)):
            return text
        return self._computed(placed)

    def _computed(self, placed: Placed, hops: int = _HOPS) -> str:
        """Who computes a value: the first with a name, where loops and copies hand it on."""
        family = self._families.get(placed, (placed,)) if placed.value.is_phi else (placed,)
        makers = [each for each in family if each.used and not each.value.is_phi] or [placed]
        texts = [each.used.instruction for each in makers if each.used]
        named = [text for text in texts if op_name(text)]
        if not named and hops:
            followed = (self._computed(each, hops - 1) for each in self._handed_on(makers))
            named = [text for text in followed if op_name(text)]
        return (named or texts or [""])[0]

    def _handed_on(self, makers: Iterable[Placed]) -> Iterator[Placed]:
        """What instructions without a name, that only copy or convert, read."""
        for each in makers:
            text = self._plan.text_of.get(each.value.name)
            if text is not None and text.opcode in _SAME_VALUE:
                yield from (read for _, read in self._plan.read_by.get((each.value.name, 0), ()))

    def _written(self, placed: Placed) -> str:
        """What computes the slices of a stacked value; empty where the update tells itself."""
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
                if op_name(found := self._computed(value)):
                    return found
        return ""
