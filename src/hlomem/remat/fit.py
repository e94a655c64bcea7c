"""Recomputation until a program fits a number, each state that counts planned exactly.

In: the stages of a plan and the bytes its temporaries may take. Out: a `Fit`: the edit whose plan
fits for the least that was found, or else the smallest. Steps are chosen by a model that counts
bytes and packs nothing (`state.py`, `choose.py`); when it says that the number is reached the
program is planned as XLA plans it, and what the model was wrong by is asked of it in addition. All
limits count steps, none counts seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlomem.base.gc_pause import collector_off
from hlomem.pipeline import in_text_order, start_stages
from hlomem.remat.choose import choose
from hlomem.remat.edit import Edit, apply_edit
from hlomem.remat.flops import Costs
from hlomem.remat.state import start_state
from hlomem.schedule.planned_orders import temporary_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlomem.pipeline import Stages
    from hlomem.remat.state import State

MAX_STEPS = 400
"""Values that are computed again at most."""
MAX_PLANS = 10
"""Exact plans at most."""
MAX_CHOICES = 4_000_000
"""Steps times nodes: what choosing may take in all."""
_MARGIN = 0.998
"""How much less than the share that is missing is asked for after a plan that misses."""


class Point(NamedTuple):
    """A program with some values computed again, planned."""

    edit: Edit
    temporaries: int
    """Bytes, as planned."""
    total: int
    """Bytes of all allocations, as planned."""
    flops: int
    """Operations more than in the program as given."""
    clones: int


class Fit(NamedTuple):
    """The outcome for a number."""

    before: int
    """Bytes of temporaries as given."""
    program_flops: int
    """Operations of the entry as given, by our count."""
    points: tuple[Point, ...]
    """All that were planned, in the order they were found."""
    best: Point | None
    """The cheapest that fits, else the smallest; None where none is smaller than what was given."""


def fit(stages: Stages, target: int, max_flops: int | None = None) -> Fit:
    """Compute values again until the temporaries take no more than a number of bytes.

    `max_flops` are operations beyond which it is not worth it.
    """
    with collector_off():
        return _Search(stages, max_flops).run(target)


class _Search:
    def __init__(self, stages: Stages, max_flops: int | None = None) -> None:
        self._stages = stages
        self._max_flops = max_flops
        self._costs = Costs(stages.options.machine.size_of)
        self._state = start_state(stages)
        self._others = {
            computation: stages.schedule.sequence(computation)
            for computation in stages.live_ranges.span_of
            if computation is not stages.module.entry
        }
        self._flops = 0
        self._steps = min(MAX_STEPS, MAX_CHOICES // max(len(self._state.order), 1))
        self._points: list[Point] = []

    def run(self, target: int) -> Fit:
        """Go down to the target, as far as that is possible."""
        before = temporary_bytes(self._stages)
        self._reach(target, before)
        smaller = [point for point in self._points if point.temporaries < before]
        fits = [point for point in smaller if point.temporaries <= target]
        best = min(
            fits or smaller,
            key=lambda point: point.flops if fits else point.temporaries,
            default=None,
        )
        flops = self._costs.total(self._stages.schedule.sequence(self._stages.module.entry))
        return Fit(before, flops, tuple(self._points), best)

    def _reach(self, target: int, planned: int) -> None:
        """Take steps and plan, until a plan fits or nothing helps."""
        for _ in range(MAX_PLANS):
            if planned <= target:
                return
            level = max(self._state.levels(), default=0)
            wanted = round(min(level * target / planned, level - 1) * _MARGIN)
            moved = sum(1 for _ in self._descend(wanted))
            if not moved:
                return
            point = self._plan()
            self._points.append(point)
            planned = point.temporaries

    def _descend(self, wanted: int) -> Iterator[State]:
        """Steps until the model counts no more than wanted."""
        while self._steps > 0 and max(self._state.levels(), default=0) > wanted:
            self._steps -= 1
            choice = choose(self._state, self._costs, wanted)
            if choice is None or self._is_too_much(choice.flops):
                self._steps = 0
                return
            self._state = choice.state
            self._flops += choice.flops
            yield self._state

    def _is_too_much(self, flops: int) -> bool:
        return self._max_flops is not None and self._flops + flops > self._max_flops

    def _plan(self) -> Point:
        edit = self._state.edit(self._others)
        stages = plan_edit(self._stages, edit)
        return Point(
            edit,
            temporary_bytes(stages),
            stages.assignment.total_bytes,
            self._flops,
            len(edit.clones),
        )


def plan_edit(stages: Stages, edit: Edit) -> Stages:
    """The plan of an edited program."""
    module = apply_edit(stages.module, edit)
    return start_stages(module, stages.options, order_lists=in_text_order)
