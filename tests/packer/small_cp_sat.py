"""The part of CP-SAT that a second opinion speaks to, answered by trying everything.

OR-tools wants an older protobuf than the one tested here, so the tests do not install it. Here are
the names of `ortools.sat.python.cp_model`, solving small models for what they say: a model that is
stated wrongly gets a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

OPTIMAL, FEASIBLE, INFEASIBLE = 4, 2, 3

Values = dict["IntVar", int]


@dataclass(frozen=True)
class Linear:
    """A variable times a factor, and a constant."""

    variable: IntVar
    factor: int
    constant: int = 0

    def __add__(self, number: int) -> Linear:
        return Linear(self.variable, self.factor, self.constant + number)

    def __le__(self, limit: IntVar) -> Constraint:
        def holds(values: Values) -> bool:
            return self.of(values) <= values[limit]

        return Constraint((self.variable, limit), holds)

    def of(self, values: Values) -> int:
        """What it is under an assignment."""
        return self.factor * values[self.variable] + self.constant


@dataclass(frozen=True, eq=False)
class IntVar:
    """A whole number of a range."""

    lower: int
    upper: int
    name: str

    def __mul__(self, factor: int) -> Linear:
        return Linear(self, factor)


class Interval(NamedTuple):
    """So long from a start, which is known or not."""

    start: int | Linear
    size: int

    def range(self, values: Values) -> tuple[int, int]:
        """From where to where under an assignment."""
        start = self.start if isinstance(self.start, int) else self.start.of(values)
        return start, start + self.size


class Constraint(NamedTuple):
    """What must hold of some variables."""

    variables: tuple[IntVar, ...]
    holds: Callable[[Values], bool]


@dataclass
class CpModel:
    """Variables, constraints, and what is to be small."""

    variables: list[IntVar] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    objective: IntVar | None = None

    def new_int_var(self, lower: int, upper: int, name: str) -> IntVar:
        self.variables.append(IntVar(lower, upper, name))
        return self.variables[-1]

    def new_fixed_size_interval_var(self, start: int | Linear, size: int, _: str) -> Interval:
        return Interval(start, size)

    def add(self, constraint: Constraint) -> None:
        self.constraints.append(constraint)

    def minimize(self, variable: IntVar) -> None:
        self.objective = variable

    def add_no_overlap_2d(self, times: Sequence[Interval], spaces: Sequence[Interval]) -> None:
        boxes = list(zip(times, spaces, strict=True))
        for number, (time, space) in enumerate(boxes):
            for other_time, other_space in boxes[:number]:
                self.constraints.append(_apart(time, space, other_time, other_space))

    def add_cumulative(self, times: Sequence[Interval], demands: Sequence[int], most: int) -> None:
        ranges = [time.range({}) for time in times]
        loads = [
            sum(demand for (a, b), demand in zip(ranges, demands, strict=True) if a <= start < b)
            for start, _ in ranges
        ]
        self.constraints.append(Constraint((), lambda _: max(loads) <= most))


def _apart(time: Interval, space: Interval, other_time: Interval, other: Interval) -> Constraint:
    starts = [interval.start for interval in (space, other)]
    variables = tuple(start.variable for start in starts if isinstance(start, Linear))

    def holds(values: Values) -> bool:
        return any(
            one[1] <= two[0] or two[1] <= one[0]
            for one, two in (
                (time.range(values), other_time.range(values)),
                (space.range(values), other.range(values)),
            )
        )

    return Constraint(variables, holds)


class CpSolver:
    """Tries every assignment."""

    def __init__(self) -> None:
        self.parameters = SimpleNamespace()
        self._best: Values | None = None
        self.best_objective_bound = 0.0

    def solve(self, model: CpModel) -> int:
        last = model.objective
        for values in _solutions(model, sorted(model.variables, key=lambda one: one is last)):
            if self._best is None or (last and values[last] < self._best[last]):
                self._best = values
            if last is None:
                break
        if self._best is None:
            return INFEASIBLE
        self.best_objective_bound = float(self._best[last]) if last else 0.0
        return OPTIMAL

    def value(self, variable: IntVar) -> int:
        assert self._best is not None
        return self._best[variable]


def _solutions(model: CpModel, order: Sequence[IntVar]) -> Iterator[Values]:
    place_of: dict[Any, int] = {variable: place for place, variable in enumerate(order)}
    checks: list[list[Constraint]] = [[] for _ in order]
    for constraint in model.constraints:
        last = max((place_of[variable] for variable in constraint.variables), default=0)
        checks[last].append(constraint)

    def extend(values: Values) -> Iterator[Values]:
        if len(values) == len(order):
            yield dict(values)
            return
        variable = order[len(values)]
        for value in range(variable.lower, variable.upper + 1):
            assigned = {**values, variable: value}
            if all(constraint.holds(assigned) for constraint in checks[len(values)]):
                yield from extend(assigned)

    return extend({})
