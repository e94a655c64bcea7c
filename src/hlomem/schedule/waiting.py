"""How long a program waits for its transfers in one order and in another, by the model of `cost`.

In: the stages of a plan and new orders. Out: the modelled time before and after, in bytes moved. A
computation that runs several times counts once: how often is not always known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.hlo.schedule import running_computations
from hlomem.schedule.cost import Delays

if TYPE_CHECKING:
    from hlomem.pipeline import Stages
    from hlomem.schedule.search import Orders


class ModelledTime(NamedTuple):
    """The time of a program, in bytes moved within a device."""

    work: int
    """If all transfers are hidden."""
    waits_before: int
    """For transfers, in the given order."""
    waits_after: int

    @property
    def ratio(self) -> float:
        """The time in the new order, divided by that in the given one."""
        before = self.work + self.waits_before
        return (self.work + self.waits_after) / before if before else 1.0


def model_time(stages: Stages, orders: Orders) -> ModelledTime:
    """The time another order takes, by the model."""
    work = before = after = 0
    for computation in running_computations(stages.module):
        nodes = stages.schedule.sequence(computation)
        delays = Delays(nodes, stages.options.machine.size_of)
        number_of = {instruction: number for number, instruction in enumerate(nodes)}
        work += delays.total
        before += delays.of(range(len(nodes)))
        after += delays.of(
            [number_of[instruction] for instruction in orders.get(computation, nodes)]
        )
    return ModelledTime(work, before, after)
