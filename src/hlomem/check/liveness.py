"""Values are live when needed, not overwritten before (`HloLiveRange::NormalizeAliasedBuffers`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.quantities import NEVER, Step
from hlomem.check.evidence import as_evidence, value_finding
from hlomem.check.findings import Finding
from hlomem.check.opcodes import PASSES_OPERANDS_ON
from hlomem.check.registers import in_registers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.check.required_times import Needs
    from hlomem.view.control_flow import Structure
    from hlomem.view.families import AliasClasses
    from hlomem.view.joined import JoinedDump, PlacedValue

_ASYNCHRONOUS = ("-start", "-update", "-done")


class Liveness:
    """The steps at which values are needed, compared with their live ranges."""

    def __init__(
        self, joined: JoinedDump, families: AliasClasses, structure: Structure, needs: Needs
    ) -> None:
        self.joined = joined
        self.structure = structure
        self.families = families
        self.needs = needs
        self._members = families.members(placed for placed in joined.placed if placed.life)
        self._conditions = {loop.condition_parameter for loop in structure.loops}

    def check(self) -> Iterator[Finding]:
        kept = in_registers(self.joined)
        time_of, length = self.joined.time_of, len(self.joined.sequence)
        for placed in self.joined.placed:
            life = placed.life
            if life is None:
                continue
            moment = time_of.get(placed.value.name)
            if (
                moment is None
                or not 0 <= life.start <= life.end <= length
                or life.start > self.needs.latest_start(placed, moment)
            ):
                yield from self._check_start(placed)
            if placed in self.families.reason:
                yield from self._check_needs(placed)
                if placed.id not in kept:
                    yield from self._check_overwritten(placed)
            elif not self.needs.are_met(placed, moment or Step(0), life.end):
                yield from self._check_needs(placed)

    def _check_start(self, placed: PlacedValue) -> Iterator[Finding]:
        life, name = placed.life, placed.value.name
        assert life is not None
        moment = self.joined.time_of.get(name)
        if not 0 <= life.start <= life.end <= len(self.joined.sequence):
            yield value_finding(placed, "live/impossible-range", "has a range no sequence can have")
        elif moment is None:
            yield value_finding(placed, "live/not-in-sequence", "is alive, but not in the sequence")
        elif life.start > self.needs.latest_start(placed, moment):
            problem = f"is alive from {life.start}, but defined at {moment}"
            yield value_finding(placed, "live/starts-late", problem)

    def _check_needs(self, placed: PlacedValue) -> Iterator[Finding]:
        assert placed.life is not None
        covered = self._covered_until(placed)
        defined = self.joined.time_of.get(placed.value.name, Step(0))
        for moment, what in self.needs.iter_needs(placed):
            if moment > covered:
                problem = f"is alive until {covered}, but {what} at {moment}"
                yield value_finding(placed, "live/ends-early", problem)
                return
            if moment < defined:
                problem = f"is defined at {defined}, but {what} at {moment}"
                yield value_finding(placed, "order/used-before-defined", problem)
                return

    def _check_overwritten(self, placed: PlacedValue) -> Iterator[Finding]:
        """No value is read after the next of its family has overwritten it."""
        assert placed.life is not None
        family = self._members.get(self.families.head(placed), ())
        for use in placed.uses:
            text = self.joined.printed.get(use.instruction)
            moment = self.joined.time_of.get(use.instruction, NEVER)
            if text is None:
                continue
            opcode = text.opcode
            passes_on = opcode in PASSES_OPERANDS_ON or opcode.endswith(_ASYNCHRONOUS)
            if moment <= placed.life.end or passes_on:
                continue
            for other in family:
                if self._overwrites(other, placed, moment):
                    values = as_evidence(placed, other)
                    yield Finding(
                        "live/overwritten",
                        f"{values[0].name} is read by {use.instruction} at {moment}, "
                        f"after {values[1].name} was written over it",
                        values=values,
                        allocations=(placed.allocation.index,),
                    )
                    return

    def _overwrites(self, other: PlacedValue, placed: PlacedValue, moment: Step) -> bool:
        assert placed.life is not None
        assert other.life is not None
        if other is placed or not placed.life.start < other.life.start < moment:
            return False
        if other.value.name in self._conditions:
            return False  # a condition reads the loop's state and writes nothing
        text = self.joined.printed.get(other.value.name)
        if text is not None and text.operand_pairs:
            return False  # declared to be its operand, possibly just forwarded
        return not self.structure.are_exclusive(other.life.start, moment)

    def _covered_until(self, placed: PlacedValue) -> Step:
        """The last step of the value, or of the family members that continue it."""
        assert placed.life is not None
        family = self._members.get(self.families.head(placed), ())
        lives = [member.life for member in family if member.life is not None]
        reach = placed.life.end
        for life in sorted(lives, key=lambda life: life.start):
            if placed.life.start <= life.start <= reach:
                reach = max(reach, life.end)
        return reach
