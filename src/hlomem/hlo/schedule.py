"""The order in which the instructions of each computation run.

In: a module, or the orders a dump gives by name. Out: a `Schedule`. In a scheduled module the order
of the text is the order of execution (`hlo/ir/hlo_schedule.h`, printed by `HloModule::Print`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule


class Schedule:
    """A sequence of instructions for computations that are not fused."""

    def __init__(self, sequences: Mapping[HloComputation, list[HloInstruction]]) -> None:
        self._sequences = sequences

    def sequence(self, computation: HloComputation) -> list[HloInstruction]:
        """The instructions of a computation in the order they run."""
        return self._sequences.get(computation) or computation.instructions


def schedule_of(module: HloModule) -> Schedule | None:
    """The schedule a module carries, None where it is not scheduled."""
    return Schedule({}) if module.is_scheduled else None


def schedule_from_names(module: HloModule, orders: Mapping[str, Iterable[str]]) -> Schedule:
    """The schedule a dump spells: instruction names in order, by computation name.

    Raises `KeyError` for a name the module does not have, `ValueError` for an order that leaves
    instructions out.
    """
    sequences: dict[HloComputation, list[HloInstruction]] = {}
    for computation_name, names in orders.items():
        computation = module.computation_by_name[computation_name]
        by_name = {instruction.name: instruction for instruction in computation.instructions}
        sequence = [by_name[name] for name in names]
        if len(set(sequence)) != len(by_name) or len(sequence) != len(by_name):
            raise ValueError(f"the order of `{computation_name}` is not one of all instructions")
        sequences[computation] = sequence
    return Schedule(sequences)
