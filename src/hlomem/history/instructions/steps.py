"""One engine for the order of the instructions in a computation's list.

In: the trace of a computation and a table of steps. Out: its instructions, the oldest first. A
computation lists its instructions in the order in which they were made, and the positions of a
value follow that list. The text shows the schedule instead; but which pass makes an instruction
follows from what it does. A table is read from top to bottom as time passes; within one step the
order is that of the text, unless the step has a key. Who claims an instruction is decided by
`precedence`; what nobody claims the program came with, the step without opcodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from hlomem.history.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hlomem.history.evidence import Trace
    from hlomem.hlo.ir import HloInstruction

Made: TypeAlias = "Callable[[HloInstruction, Trace], bool]"
Arrange: TypeAlias = "Callable[[list[HloInstruction], Trace], list[HloInstruction]]"


def always(_instruction: HloInstruction, _trace: Trace) -> bool:
    """For a step that makes all instructions of its opcodes."""
    return True


class Step(Rule, frozen=True, kw_only=True):
    """Passes that make instructions of certain opcodes; the trace is that of their computation."""

    opcodes: frozenset[str]
    """Empty for the program, which made what nobody claims."""
    made: Made = always
    precedence: int = 0
    key: Callable[[HloInstruction], int] | None = None


class Arrangement(Rule, frozen=True, kw_only=True):
    """Something that put the whole list of a computation in another order."""

    arrange: Arrange


class Steps:
    """A table of steps, by opcode."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._keys = [step.key for step in steps]
        self._program = next(place for place, step in enumerate(steps) if not step.opcodes)
        self._claims: dict[str, list[tuple[int, Made]]] = {}
        for place, step in sorted(enumerate(steps), key=lambda entry: entry[1].precedence):
            for opcode in step.opcodes:
                self._claims.setdefault(opcode, []).append((place, step.made))

    def instructions_by_age(self, trace: Trace) -> list[HloInstruction]:
        """The instructions of a computation, the oldest first."""
        instructions = trace.computation.instructions
        if trace.is_embedded:
            return instructions  # has no loops, and no copies are inserted
        made: list[list[HloInstruction]] = [[] for _ in self._keys]
        program, claims = made[self._program], self._claims
        for instruction in instructions:
            candidates = claims.get(instruction.opcode)
            if candidates is None:
                program.append(instruction)
                continue
            for place, is_made in candidates:
                if is_made(instruction, trace):
                    made[place].append(instruction)
                    break
            else:
                program.append(instruction)
        for listed, key in zip(made, self._keys, strict=True):
            if key is not None:
                listed.sort(key=key)
        return [instruction for listed in made for instruction in listed]
