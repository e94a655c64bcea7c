"""CP-SAT's solution (`hlomem[solver]`); one worker and its own clock make it reproducible."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.packer.instance import Instance

_STEPS_PER_TICK = 10_000
"""Our steps per unit of CP-SAT's deterministic time, about a second."""
_MAX_UNITS = 1 << 40
"""CP-SAT multiplies lengths and counts in 64 bits."""


class Opinion(NamedTuple):
    """CP-SAT's answer."""

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
        raise CommandError("these sizes exceed CP-SAT's 64 bits; omit the second opinion")
    model = cp_model.CpModel()
    offsets, top = _state(model, instance, lower_bound, limit)
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
    pairs = zip(offsets, instance.alignment, strict=True)
    found = [solver.value(offset) * step for offset, step in pairs]
    if capacity is None:
        lower_bound = max(lower_bound, round(solver.best_objective_bound))
    return Opinion(found, lower_bound)


def _import() -> Any:
    try:
        return import_module("ortools.sat.python.cp_model")
    except ImportError as error:
        problem = "the second opinion needs OR-tools: pip install 'hlomem[solver]'"
        raise CommandError(problem) from error


def _state(model: Any, instance: Instance, lowest: int, limit: int) -> tuple[list[Any], Any]:
    """The offsets, in multiples of each buffer's alignment, and the height in bytes."""
    unit, interval = instance.unit, model.new_fixed_size_interval_var
    capacity = (limit + max(instance.padding)) // unit
    top = model.new_int_var(lowest, limit, "height")
    offsets, times, spaces, demands = [], [], [], []
    for b, buffer in enumerate(instance.buffers):
        step, size = instance.alignment[b], instance.size[b]
        offset = model.new_int_var(0, (limit - buffer.size) // unit // step, f"offset {b}")
        model.add(offset * (step * unit) + buffer.size <= top)
        offsets.append(offset)
        for first, end in instance.ranges[b]:
            times.append(interval(first, end - first, f"life {b} {first}"))
            spaces.append(interval(offset * step, size, f"{b} {first}"))
            demands.append(size)
    model.add_no_overlap_2d(times, spaces)
    model.add_cumulative(times, demands, capacity)
    return offsets, top
