"""Live ranges and the sequence agree with the uses and positions a dump lists.

A value is alive from its definition to the last moment it is read or returned. XLA cuts the range
of a value where the next of its family begins (`HloLiveRange::NormalizeAliasedBuffers`), so a use
may be covered by a later value of the same family, which holds the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.check.findings import Finding
from hlomem.check.plan import about, involve

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from hlomem.check.aliases import Families
    from hlomem.check.plan import Placed, Plan
    from hlomem.check.structure import Structure

_RUNS_OTHERS = frozenset({"tuple", "while", "call", "conditional"})
_ASYNCHRONOUS = ("-start", "-update", "-done")


class Liveness:
    """The moments at which values are needed, held against their ranges."""

    def __init__(self, plan: Plan, families: Families, structure: Structure) -> None:
        self.plan = plan
        self.structure = structure
        self.families = families
        self.returned_at = _moments_of_return(plan, structure)
        self.body_start = {each.instruction: each.body_parameter for each in structure.loops}
        self._members = families.members(each for each in plan.placed if each.life)

    def check(self) -> Iterator[Finding]:
        """Every rule about one value's life."""
        for placed in self.plan.placed:
            if placed.life is not None:
                yield from self._check_start(placed)
                yield from self._check_needs(placed)
                yield from self._check_overwritten(placed)

    def _check_start(self, placed: Placed) -> Iterator[Finding]:
        life, name = placed.life, placed.value.name
        assert life is not None
        moment = self.plan.time_of.get(name)
        if not 0 <= life.start <= life.end <= len(self.plan.sequence):
            yield about(placed, "live/impossible-range", "has a range no sequence can have")
        elif moment is None:
            yield about(placed, "live/not-in-sequence", "is alive, but not in the sequence")
        elif life.start not in self._possible_starts(placed, moment):
            problem = f"is alive from {life.start}, but defined at {moment}"
            yield about(placed, "live/wrong-start", problem)

    def _possible_starts(self, placed: Placed, moment: int) -> Collection[int]:
        """The moments a value defined at `moment` may be alive from.

        A parameter is there as soon as its computation starts, before its own turn. What an
        asynchronous operation computes is there from its start instruction on, in whose result
        it appears: XLA for TPU counts from that, one step later.
        """
        text = self.plan.text_of.get(placed.value.name)
        if text is None or text.opcode == "parameter":
            return range(moment + 1)
        positions = placed.used.positions if placed.used else ()
        starts = [self.plan.time_of.get(each.instruction) for each in positions if each.index]
        return [moment, *(each for each in starts[:1] if each == moment + 1)]

    def _check_needs(self, placed: Placed) -> Iterator[Finding]:
        assert placed.life is not None
        covered = self.covered_until(placed)
        defined = self.plan.time_of.get(placed.value.name, 0)
        for moment, what in self._needs(placed):
            if moment > covered:
                problem = f"is alive until {covered}, but {what} at {moment}"
                yield about(placed, "live/ends-early", problem)
                return
            if moment < defined:
                problem = f"is defined at {defined}, but {what} at {moment}"
                yield about(placed, "order/used-before-defined", problem)
                return

    def _check_overwritten(self, placed: Placed) -> Iterator[Finding]:
        """A value is not read when the next of its family has been written over it."""
        assert placed.life is not None
        family = self._members.get(self.families.head(placed), ())
        for use in (placed.used.uses if placed.used else None) or ():
            text = self.plan.text_of.get(use.instruction)
            moment = self.plan.time_of.get(use.instruction, -1)
            if text is None or moment <= placed.life.end or _runs_others(text.opcode):
                continue
            for other in family:
                if self._overwrites(other, placed, moment):
                    values = involve(placed, other)
                    yield Finding(
                        rule="live/overwritten",
                        message=f"{values[0].name} is read by {use.instruction} at {moment}, "
                        f"after {values[1].name} was written over it",
                        values=values,
                        allocations=(placed.allocation.index,),
                    )
                    return

    def _overwrites(self, other: Placed, placed: Placed, moment: int) -> bool:
        """Whether `other` is written between a value's definition and a moment it is read at."""
        assert placed.life is not None
        assert other.life is not None
        if other is placed or not placed.life.start < other.life.start < moment:
            return False
        text = self.plan.text_of.get(other.value.name)
        if text is not None and text.operand_pairs:
            return False  # declared to be its operand, maybe just handed on
        return not self.structure.are_exclusive(other.life.start, moment)

    def covered_until(self, placed: Placed) -> int:
        """The last moment of the value, or of those of its family that follow it."""
        assert placed.life is not None
        family = self._members.get(self.families.head(placed), (placed,))
        following = [
            each.life.end
            for each in family
            if each.life is not None and each.life.start >= placed.life.start
        ]
        return max(following)

    def _needs(self, placed: Placed) -> Iterator[tuple[int, str]]:
        """The moments at which a value must be there, and what for."""
        used = placed.used
        if used is None:
            return
        for position in used.positions:
            key = (position.instruction, position.index or ())
            if key in self.returned_at:
                yield self.returned_at[key], f"returned by {position.instruction}"
            elif (moment := self.plan.time_of.get(position.instruction)) is not None:
                yield moment, f"part of {position.instruction}"
        for use in used.uses or ():
            moment = self._moment_of_use(placed, use.instruction)
            if moment is not None:
                yield moment, f"read by {use.instruction}"

    def _moment_of_use(self, placed: Placed, user: str) -> int | None:
        """When an operand is read; None where something else the dump lists says it better."""
        text = self.plan.text_of.get(user)
        if text is None and self._enters_a_call(placed, user):
            return None
        if text is not None and text.opcode == "call":
            return None
        if text is not None and text.opcode == "while":
            # What a loop starts from is over when the body has its own version.
            user = self.body_start.get(user, "")
        return self.plan.time_of.get(user)

    def _enters_a_call(self, placed: Placed, user: str) -> bool:
        """Whether a user runs instructions that read the value, rather than reading it itself.

        Such instructions stand before it, and their parameter is a position of the value.
        """
        assert placed.used is not None
        first = self.plan.time_of.get(placed.value.name, 0)
        last = self.plan.time_of.get(user, 0)
        return any(
            first < self.plan.time_of.get(position.instruction, -1) < last
            and position.instruction not in self.plan.users
            for position in placed.used.positions
        )


def _runs_others(opcode: str) -> bool:
    """Whether it passes operands on, or to instructions that are in the sequence themselves."""
    return opcode in _RUNS_OTHERS or opcode.endswith(_ASYNCHRONOUS)


def _moments_of_return(plan: Plan, structure: Structure) -> dict[tuple[str, tuple[int, ...]], int]:
    """Until when what a body, a branch or the program returns must be there."""
    ends: dict[str, int] = {}
    for loop in structure.loops:
        if loop.body_root is not None:
            ends[loop.body_root] = plan.time_of[loop.instruction]
    for conditional in structure.conditionals:
        for branch in conditional.branches:
            if branch.root is not None:
                ends[branch.root] = branch.end
    returned = {
        (name, index): end for name, end in ends.items() for index in plan.indices_at.get(name, ())
    }
    output = plan.output
    if output is not None:
        name = output.value.name
        parts = plan.indices_at.get(name, ()) if output.value.index == () else [output.index]
        returned.update({(name, index): len(plan.sequence) for index in parts})
    return returned
