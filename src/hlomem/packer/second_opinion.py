"""OR-tools' CP-SAT on the same question, for who wants a proof by somebody else.

In: an instance and what is known. Out: offsets if it finds better ones, and a lower bound if it
proves a better one. Needs `pip install hlomem[solver]`. Its work is limited by its own
deterministic clock and done by one worker, so that the answer does not depend on the machine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.packer.instance import Instance

_STEPS_PER_TICK = 10_000
"""Steps of ours that count as one unit of CP-SAT's deterministic time, about a second each."""
_MAX_UNITS = 1 << 40
"""CP-SAT multiplies lengths and counts in 64 bits."""


class Opinion(NamedTuple):
    """What CP-SAT says."""

    offsets: Sequence[int]
    """In units, by number; empty if it found none."""
    lower_bound: int


def ask_cp_sat(
    instance: Instance, capacity: int | None, lower_bound: int, height: int, effort: int
) -> Opinion:
    """The lowest packing below `height`, or one that fits the capacity."""
    cp_model = _import()
    limit = height - 1 if capacity is None else capacity
    if limit < lower_bound:
        return Opinion((), lower_bound)
    if (limit + max(instance.padding)) // instance.unit > _MAX_UNITS:
        raise CommandError("these sizes are beyond CP-SAT's 64 bits; leave the second opinion out")
    model = cp_model.CpModel()
    places, top = _state(model, instance, lower_bound, limit)
    if capacity is None:
        model.minimize(top)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = max(1.0, effort / _STEPS_PER_TICK)
    outcome = solver.solve(model)
    if outcome == cp_model.INFEASIBLE:
        return Opinion((), instance.next_height(limit))
    if outcome not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Opinion((), lower_bound)
    offsets = [
        solver.value(place) * step for place, step in zip(places, instance.alignment, strict=True)
    ]
    if capacity is not None:
        return Opinion(offsets, lower_bound)
    return Opinion(offsets, max(lower_bound, round(solver.best_objective_bound)))


def _import() -> Any:
    try:
        return import_module("ortools.sat.python.cp_model")
    except ImportError as error:
        problem = "the second opinion needs OR-tools: pip install 'hlomem[solver]'"
        raise CommandError(problem) from error


def _state(model: Any, instance: Instance, lowest: int, limit: int) -> tuple[list[Any], Any]:
    """The places, in steps of each buffer's alignment, and the height in bytes."""
    unit = instance.unit
    capacity = (limit + max(instance.padding)) // unit
    top = model.new_int_var(lowest, limit, "height")
    places, times, spaces, demands = [], [], [], []
    for b, buffer in enumerate(instance.buffers):
        step = instance.alignment[b]
        place = model.new_int_var(0, (limit - buffer.size) // unit // step, f"place {b}")
        model.add(place * (step * unit) + buffer.size <= top)
        places.append(place)
        for first, end in instance.ranges[b]:
            times.append(model.new_fixed_size_interval_var(first, end - first, f"life {b} {first}"))
            spaces.append(
                model.new_fixed_size_interval_var(place * step, instance.size[b], f"{b} {first}")
            )
            demands.append(instance.size[b])
    model.add_no_overlap_2d(times, spaces)
    model.add_cumulative(times, demands, capacity)
    return places, top
