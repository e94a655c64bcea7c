"""The execution order of each computation: that of a scheduled text (`hlo/ir/hlo_schedule.h`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.hlo.opcodes import RUN_IN_PLACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule


class Schedule:
    """A sequence of instructions for computations that are not fused."""

    def __init__(self, sequences: Mapping[HloComputation, list[HloInstruction]]) -> None:
        self._sequences = sequences

    def sequence(self, computation: HloComputation) -> list[HloInstruction]:
        return self._sequences.get(computation) or computation.instructions


def schedule_of(module: HloModule) -> Schedule | None:
    return Schedule({}) if module.is_scheduled else None


def schedule_from_names(module: HloModule, orders: Mapping[str, Iterable[str]]) -> Schedule:
    """A schedule by names; `KeyError` for an unknown one, `ValueError` for an incomplete order."""
    sequences: dict[HloComputation, list[HloInstruction]] = {}
    for computation_name, names in orders.items():
        computation = module.computation_by_name[computation_name]
        by_name = {instruction.name: instruction for instruction in computation.instructions}
        sequence = [by_name[name] for name in names]
        if len(set(sequence)) != len(by_name) or len(sequence) != len(by_name):
            raise ValueError(f"`{computation_name}`: the order must list every instruction once")
        sequences[computation] = sequence
    return Schedule(sequences)


class SequenceProblem(Exception):  # noqa: N818 - becomes an error once it has a position
    """Why names are not a flattened schedule of a module."""

    def __init__(self, step: int, problem: str) -> None:
        super().__init__(problem)
        self.step = step


def check_sequence(module: HloModule, names: Sequence[str]) -> None:
    """Raise unless names are those of all scheduled instructions, each once, after its operands."""
    instruction_of = {
        instruction.name: instruction
        for computation in running_computations(module)
        for instruction in computation.instructions
    }
    seen: set[str] = set()
    for step, name in enumerate(names):
        instruction = instruction_of.get(name)
        if instruction is None:
            raise SequenceProblem(step, f"the module runs no instruction `{name}`")
        if name in seen:
            raise SequenceProblem(step, f"`{name}` appears twice in the sequence")
        for operand in instruction.operands:
            if operand.name not in seen:
                raise SequenceProblem(step, f"`{name}` comes before its operand `{operand.name}`")
        seen.add(name)
    missing = next((name for name in instruction_of if name not in seen), None)
    if missing is not None:
        raise SequenceProblem(len(names), f"the sequence lacks `{missing}`")


def running_computations(module: HloModule) -> Iterator[HloComputation]:
    """The entry and every computation that is scheduled with it."""
    seen: set[HloComputation] = set()
    pending = [module.entry]
    while pending:
        computation = pending.pop()
        if computation in seen:
            continue
        seen.add(computation)
        yield computation
        for instruction in computation.instructions:
            if instruction.opcode in RUN_IN_PLACE:
                pending += instruction.called_computations
