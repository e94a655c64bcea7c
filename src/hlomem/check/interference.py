"""Two values that are live at the same time must not share bytes.

    a  [4, 7]  bytes [0, 64)        a is read for the last time at 7,
    b  [7, 9]  bytes [0, 64)        where b overwrites it, element by element

An operand and its user meet at one step: they may share exactly one slice. Pieces of a
`ConcatBitcast` are inside its result. Branches of one conditional exclude each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.quantities import NEVER, AllocationIndex, Step
from hlomem.check.evidence import as_evidence
from hlomem.check.findings import Finding
from hlomem.check.fusions import Form, StrayRead, find_stray_read, form_of
from hlomem.check.opcodes import ONLY_INTO_OPERAND, READS_ELSEWHERE
from hlomem.view.sweep import Residency, iter_sharing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.check.program import TracedProgram
    from hlomem.dump.records import ShapeIndex
    from hlomem.hlo.ir import HloInstruction
    from hlomem.view.control_flow import Structure
    from hlomem.view.families import AliasClasses
    from hlomem.view.instruction_line import PrintedInstruction
    from hlomem.view.joined import JoinedDump, PlacedValue

CONCAT = "ConcatBitcast"
_CONTEXT = (2,)
"""The part of an asynchronous operation's result that holds its state."""


class Interference:
    """The sweep over one plan; `pair_count` counts the pairs proved to share bytes safely."""

    def __init__(
        self,
        joined: JoinedDump,
        families: AliasClasses,
        structure: Structure,
        program: TracedProgram | None = None,
    ) -> None:
        self.joined = joined
        self.program = program
        self.families = families
        self.structure = structure
        self.pair_count = 0
        self._sound: set[tuple[Form | None, int, ShapeIndex]] = set()
        """Forms of fusions, with an operand and an output that may share bytes."""
        self._form_of: dict[HloInstruction, Form | None] = {}

    def check(self) -> Iterator[Finding]:
        by_allocation: dict[AllocationIndex, list[PlacedValue]] = {}
        for placed in self.joined.placed:
            if placed.value.size > 0:
                by_allocation.setdefault(placed.allocation.index, []).append(placed)
        for values in by_allocation.values():
            stays = [
                Residency(
                    placed.life.start, placed.life.end, placed.id, placed.start, placed.end, placed
                )
                for placed in values
                if placed.life is not None
            ]
            for earlier, later in iter_sharing(stays) if len(stays) > 1 else ():
                yield from self._check_pair(earlier.who, later.who)

    def _check_pair(self, earlier: PlacedValue, later: PlacedValue) -> Iterator[Finding]:
        assert earlier.life is not None
        assert later.life is not None
        rule, why = "interference/overlap", "values that live at the same time need their own bytes"
        if earlier.life.end == later.life.start:
            rule, why = self._check_touching(earlier, later)
        elif self._is_over(earlier, later.life.start) or self._is_waiting(earlier, later):
            why = ""
        if not why:
            self.pair_count += 1
            return
        values = as_evidence(earlier, later)
        first, last = later.life.start, min(earlier.life.end, later.life.end)
        low, high = max(earlier.start, later.start), min(earlier.end, later.end)
        yield Finding(
            rule,
            f"{values[0].name} and {values[1].name} live in the same {high - low} bytes",
            values=values,
            allocations=(earlier.allocation.index,),
            evidence=(
                f"both are alive from {first} to {last}",
                f"both hold bytes [{low}, {high}) of allocation {earlier.allocation.index}",
                why,
            ),
        )

    def _is_over(self, placed: PlacedValue, moment: Step) -> bool:
        """Whether a value belongs to another branch, or is no longer needed in the running one.

        An operand of a conditional counts as live until the last branch ends, but memory-space
        assignment on TPU considers each branch alone.
        """
        assert placed.life is not None
        if self.structure.are_exclusive(placed.life.start, moment):
            return True
        around = {
            conditional.instruction
            for conditional in self.structure.conditionals
            if conditional.branch_at(moment) is not None
        }
        if not around or placed.used is None or placed.allocation.parameter is not None:
            return False
        readers = {use.instruction for use in placed.used.uses or ()} - around
        needed = readers | {position.instruction for position in placed.used.positions}
        return not any(self._may_run(name, moment) for name in needed)

    def _may_run(self, name: str, moment: Step) -> bool:
        """Whether an instruction may run, still run, or be returned at a step or later."""
        time = self.joined.time_of.get(name, NEVER)
        is_late = max(time, self._returned_at(name), self._done_at(name)) >= moment
        return is_late and not self.structure.are_exclusive(time, moment)

    def _done_at(self, name: str) -> Step:
        """The step at which a started operation is done; `NEVER` for other instructions."""
        text = self.joined.printed.get(name)
        if text is None or not text.opcode.endswith("-start"):
            return NEVER
        printed, time_of = self.joined.printed, self.joined.time_of
        whole = self.joined.values_at.get((name, ()), ())
        readers = [use.instruction for one in whole if one.used for use in one.used.uses or ()]
        is_updated = any(
            reader in printed and printed[reader].opcode.endswith("-update") for reader in readers
        )
        end = self.joined.end
        if not readers or is_updated:
            return end
        return max(time_of.get(reader, end) for reader in readers)

    def _returned_at(self, name: str) -> Step:
        """The step at which a loop or conditional returns this root's value; `NEVER` for others."""
        loops = [loop.instruction for loop in self.structure.loops if loop.body_root == name]
        conditionals = [
            conditional.instruction
            for conditional in self.structure.conditionals
            if name in {branch.root for branch in conditional.branches}
        ]
        time_of = self.joined.time_of
        return max((time_of[runner] for runner in (*loops, *conditionals)), default=NEVER)

    def _is_waiting(self, earlier: PlacedValue, later: PlacedValue) -> bool:
        """Whether `later` is the context of an operation that waits for that of `earlier`.

        A thread other than the main one (a TPU's sparse core) runs one operation at a time, in the
        order in which they get their last operands; one started without operands waits for an
        update (`IsFirstFullyBound` of `hlo/ir/hlo_instruction_utils.cc`).
        """
        start, other = self._start_of_context(later), self._start_of_context(earlier)
        if start is None or other is None or start.operands or start.thread != other.thread:
            return False
        text = self.joined.printed[earlier.value.name]
        is_unbound = text.opcode.endswith("-start") and not text.operands
        return bool(start.thread) and not (later.value.name != start.name and is_unbound)

    def _start_of_context(self, placed: PlacedValue) -> PrintedInstruction | None:
        """The start of the operation whose context is a value; None for other values."""
        text = self.joined.printed.get(placed.value.name)
        while text is not None and text.opcode.endswith("-update"):
            text = self.joined.printed.get(text.operands[0])
        is_part = placed.index[:1] == _CONTEXT and placed.index != _CONTEXT  # but not their table
        return text if text is not None and is_part and text.opcode.endswith("-start") else None

    def _check_touching(self, earlier: PlacedValue, later: PlacedValue) -> tuple[str, str]:
        """The rule for two values that meet at one step, and why it is broken, if it is."""
        name = later.value.name
        numbers = earlier.operand_numbers(name)
        text = self.joined.printed.get(name)
        if numbers and earlier.slice == later.slice:
            why = self._why_not_through_fusion(later, numbers)
            if why:
                return "interference/in-place-fusion", why
        if self.families.are_together(earlier, later):
            return "", ""  # at one slice, or `alias/torn` reports it
        if not numbers or text is None:
            return (
                "interference/touch",
                f"{name} does not read {earlier.value.name}, so it is not in place",
            )
        if text.target == CONCAT:
            why = "a piece of a concatenation must be at its offset in the result"
            return "interference/concat-piece", "" if self._is_piece(earlier, later) else why
        if earlier.slice != later.slice:
            return "interference/touch-partial", "in place means at the identical slice"
        return "interference/touch", why_not_in_place(earlier, later, text, numbers)

    def _why_not_through_fusion(self, later: PlacedValue, numbers: list[int]) -> str:
        """Why a fusion may not overwrite the operands of these numbers; empty if it may."""
        if self.program is None:
            return ""
        fusion = self.program.instruction_by_name.get(later.value.name)
        if fusion is None or fusion.opcode != "fusion" or not fusion.called_computations:
            return ""
        may_declare = fusion.may_have("output_to_operand_aliasing")
        declared = {
            (alias.operand_number, tuple(alias.output_index))
            for alias in (fusion.output_to_operand_aliasing if may_declare else ())
        }
        for number in numbers:
            if (number, later.index) in declared:
                continue
            stray = self._find_stray_read(fusion, number, later.index)
            if stray is not None:
                return (
                    f"inside the fusion, {stray.instruction} ({stray.opcode}) reads operand "
                    f"{number} at other elements than it writes{stray.detail}; "
                    "they may be overwritten before they are read"
                )
        return ""

    def _find_stray_read(
        self, fusion: HloInstruction, operand: int, output: ShapeIndex
    ) -> StrayRead | None:
        """`find_stray_read`, cached by form."""
        if fusion not in self._form_of:
            self._form_of[fusion] = form_of(fusion)
        key = (self._form_of[fusion], operand, output)
        if key in self._sound:
            return None
        stray = find_stray_read(fusion, operand, output)
        if stray is None and key[0] is not None:
            self._sound.add(key)
        return stray

    def _is_piece(self, piece: PlacedValue, whole: PlacedValue) -> bool:
        """Whether an operand of a concatenation is at its offset, which slices determine."""
        pieces: list[tuple[tuple[int, ...], int, PlacedValue]] = []
        text = self.joined.printed[whole.value.name]
        for number in range(len(text.operands)):
            for _, operand in self.joined.read_by.get((whole.value.name, number), ()):
                cut = self.joined.printed.get(operand.value.name)
                pieces.append((cut.slice_starts if cut else (), number, operand))
        pieces.sort(key=lambda entry: entry[:2])
        order = [operand for _, _, operand in pieces]
        if piece not in order:
            return False  # not an operand of the concatenation, despite the list
        before = order[: order.index(piece)]
        start = whole.start + sum(operand.value.size for operand in before)
        return piece.start == start and piece.end <= whole.end


def why_not_in_place(
    earlier: PlacedValue, later: PlacedValue, text: PrintedInstruction, numbers: list[int]
) -> str:
    """Why `later` may not overwrite `earlier`, its operands of these numbers; empty if it may.

    Instructions that read other elements of an operand than they write would read overwritten ones
    (`CanShareOperandBufferWithUser`). A dump does not show the inside of a fusion.
    """
    opcode = text.opcode
    if opcode in READS_ELSEWHERE:
        return f"`{opcode}` reads other elements of its operand than it writes"
    if opcode == "fusion":
        return ""
    if opcode == "custom-call":
        return "the custom call does not declare that it writes into this operand"
    if opcode in ONLY_INTO_OPERAND and numbers != [ONLY_INTO_OPERAND[opcode]]:
        return f"`{opcode}` writes into its operand {ONLY_INTO_OPERAND[opcode]} only"
    if opcode == "scatter" and max(numbers) >= len(text.operands) // 2:
        return "`scatter` writes into the operands it updates only"
    if opcode == "sort" and later.index and later.index[0] not in numbers:
        return f"output {later.index[0]} of the sort is another operand's"
    read_as = [name for number, name in enumerate(text.operands) if number in numbers]
    if earlier.value.name in read_as and earlier.value.shape != later.value.shape:
        # Under another name it has the shape of a bitcast.
        return f"its shape {later.value.shape} is not its operand's"
    return ""
