"""The modelled time of a program in one order and in another.

In: a program and orders of it. Out: its time by the model of `cost`, in bytes moved: that of its
work, loops as often as they are known to run, and that for which it waits for transfers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.opcodes import RUN_IN_PLACE
from hlomem.opt.orders.cost import Delays, Times, time_inside
from hlomem.opt.orders.effects import is_start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hlomem.hlo.ir import HloComputation, HloInstruction, HloModule
    from hlomem.machines.machine import Machine
    from hlomem.opt.orders.search import Orders
    from hlomem.pipeline import Stages


class ModelledTime(NamedTuple):
    """The time of a program, in bytes moved within a device."""

    work: int
    """If all transfers are hidden."""
    waits_before: int
    """For transfers, in the given order."""
    waits_after: int

    @property
    def before(self) -> int:
        """All in the given order."""
        return self.work + self.waits_before

    @property
    def after(self) -> int:
        """All in the new order."""
        return self.work + self.waits_after

    @property
    def ratio(self) -> float:
        """The time in the new order, divided by that in the given one."""
        return self.after / self.before if self.before else 1.0


def model_time(stages: Stages, orders: Orders) -> ModelledTime:
    """The time another order takes, by the model."""
    module, machine = stages.module, stages.options.machine
    given = stages.schedule.sequence
    before = _Waits(machine, given)
    after = _Waits(machine, lambda computation: orders.get(computation) or given(computation))
    return ModelledTime(
        sum(map(Times(machine).of, module.entry.instructions)),
        before.of(module.entry),
        after.of(module.entry) if orders else before.of(module.entry),
    )


def module_time(module: HloModule, machine: Machine) -> int:
    """The time of a program in the order of its text, by the model."""
    work = sum(map(Times(machine).of, module.entry.instructions))
    return work + _Waits(machine, lambda computation: computation.instructions).of(module.entry)


class _Waits:
    """The time for which computations wait in the order they have, all that they run included."""

    def __init__(
        self,
        machine: Machine,
        order_of: Callable[[HloComputation], Sequence[HloInstruction]],
    ) -> None:
        self._machine = machine
        self._order_of = order_of
        self._known: dict[HloComputation, int] = {}

    def of(self, computation: HloComputation) -> int:
        if computation not in self._known:
            order = self._order_of(computation)
            has_transfers = any(map(is_start, order))
            own = Delays(order, self._machine).of(range(len(order))) if has_transfers else 0
            callers = [part for part in order if part.opcode in RUN_IN_PLACE]
            inside = sum(time_inside(caller, self.of) for caller in callers)
            self._known[computation] = own + inside
        return self._known[computation]
