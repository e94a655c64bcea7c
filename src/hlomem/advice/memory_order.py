"""An order of instructions that keeps little alive: list scheduling.

Of all instructions whose operands are there, the one runs next that frees most bytes beyond those
it makes; the given order decides between equals. The idea is XLA's (`ListMemoryScheduler` of
hlo/transforms/simplifiers/hlo_memory_scheduler.cc), which also weighs the memory of called
computations; this one does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.ir import HloComputation, HloInstruction
    from hlomem.hlo.shape import Shape

_FORWARDING = frozenset(
    {
        "bitcast",
        "conditional",
        "get-tuple-element",
        "opt-barrier",
        "tuple",
        "while",
        "copy-done",
        "async-done",
        "async-update",
    }
)
"""Opcodes whose results are mostly their operands."""
_GIVEN = frozenset({"parameter", "constant"})
"""Opcodes whose results are there from the beginning."""


def memory_order(
    computation: HloComputation, size_of: Callable[[Shape], int]
) -> list[HloInstruction]:
    """The instructions of a computation in an order that frees early what is large."""
    scheduler = _Scheduler(computation.instructions, size_of)
    scheduler.keep(computation.root)
    return scheduler.run()


class _Scheduler:
    def __init__(self, instructions: list[HloInstruction], size_of: Callable[[Shape], int]) -> None:
        self._instructions = instructions
        self._size = {
            each: 0
            if each.opcode in _FORWARDING | _GIVEN
            else sum(size_of(leaf) for _, leaf in each.shape.leaves())
            for each in instructions
        }
        self._held_by: dict[HloInstruction, frozenset[HloInstruction]] = {}
        """The instructions whose memory a result lies in."""
        self._readers: dict[HloInstruction, set[HloInstruction]] = {}
        for each in instructions:
            self._hold(each)

    def _hold(self, instruction: HloInstruction) -> None:
        read = frozenset(self._bases(instruction))
        for base in read:
            self._readers.setdefault(base, set()).add(instruction)
        is_own = instruction.opcode not in _FORWARDING
        self._held_by[instruction] = frozenset({instruction}) if is_own else read

    def keep(self, root: HloInstruction) -> None:
        """What the result lies in is read after the end, and so never freed."""
        for base in self._held_by[root]:
            self._size[base] = 0

    def run(self) -> list[HloInstruction]:
        """The order."""
        waits_for = {
            each: {*each.operands, *each.control_predecessors} for each in self._instructions
        }
        waiting: dict[HloInstruction, list[HloInstruction]] = {}
        for each, needed in waits_for.items():
            for operand in needed:
                waiting.setdefault(operand, []).append(each)
        place = {each: number for number, each in enumerate(self._instructions)}
        ready = [each for each in self._instructions if not waits_for[each]]
        order: list[HloInstruction] = []
        while ready:
            chosen = max(ready, key=lambda each: (self._gain(each), -place[each]))
            ready.remove(chosen)
            order.append(chosen)
            self._read(chosen)
            for each in waiting.get(chosen, ()):
                waits_for[each].discard(chosen)
                if not waits_for[each]:
                    ready.append(each)
        return order

    def _bases(self, instruction: HloInstruction) -> set[HloInstruction]:
        return {base for operand in instruction.operands for base in self._held_by[operand]}

    def _gain(self, instruction: HloInstruction) -> int:
        """Bytes freed when an instruction has run, less those it makes."""
        if instruction.opcode in _GIVEN:
            return 0
        freed = sum(
            self._size[base]
            for base in self._bases(instruction)
            if self._readers[base] == {instruction}
        )
        return freed - self._size[instruction]

    def _read(self, instruction: HloInstruction) -> None:
        for base in self._bases(instruction):
            self._readers[base].discard(instruction)
