"""The search of one row of `fit`, in this process, on a thread or on a Dask worker.

In: a `RowTask`, all of which can be sent. Out: the row, or one that says why there is none.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from hlomem.api.fit_search import MAX_PLANS, Planned, next_value, straddle
from hlomem.base.errors import HlomemError
from hlomem.jax.compile.parent import CompileError
from hlomem.jax.fit_forecasts import Forecasts
from hlomem.jax.known_plans import KnownPlans
from hlomem.jax.target_kinds import parse_target
from hlomem.report.data.fit import FitPlan, FitRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hlomem.jax.compile.messages import Job


class RowTask(Struct, frozen=True, kw_only=True):
    """A row to search."""

    job: Job
    """With the target and all settings but the one that is increased."""
    own: dict[str, Any]
    """The values that make it a row."""
    over: str
    """The setting to increase; empty for one plan of the settings as they are."""
    limit: int
    """Bytes that a program may need."""
    cache: str
    step: int = 1
    start: int = 0
    timeout: float | None = None


class RowOutcome(NamedTuple):
    """A row, and the error where it has no plan."""

    row: FitRow
    error: HlomemError | None = None


def search_row(
    task: RowTask, on_progress: Callable[[str], None] = lambda _words: None
) -> RowOutcome:
    """The row of a task; an error of its factory or its compiler is the row's own."""
    try:
        return RowOutcome(_Search(task, on_progress).row())
    except HlomemError as error:
        return RowOutcome(problem_row(task.own, task.job.target, task.limit, str(error)), error)


def problem_row(own: dict[str, Any], target: str, capacity: int, problem: str) -> FitRow:
    """A row without plans."""
    return FitRow(
        settings=own,
        plans=(),
        largest=0,
        smallest_refused=None,
        is_proven=False,
        base=0,
        per_item=0.0,
        target=target,
        capacity=capacity,
        problem=problem.partition("\n")[0],
    )


class _Search:
    """The plans of one row, asked for by value."""

    def __init__(self, task: RowTask, on_progress: Callable[[str], None]) -> None:
        self._task = task
        self._on_progress = on_progress
        self._known = KnownPlans(Path(task.cache))
        self._forecasts = Forecasts(Path(task.cache))
        self._plans: list[FitPlan] = []
        self._commands: dict[int, str] = {}

    def row(self) -> FitRow:
        task = self._task
        if task.over:
            self._grow()
        else:
            self._plan(0, "plan")
        edge = straddle(_planned(self._plans))
        base, per_item = _line(self._plans)
        target = parse_target(task.job.target)
        return FitRow(
            settings=task.own,
            plans=tuple(self._plans),
            largest=edge.largest,
            smallest_refused=edge.refused,
            is_proven=edge.is_closed(task.step) if task.over else True,
            base=base,
            per_item=per_item,
            target=target.name,
            capacity=task.limit,
            chips=target.chip_count,
            is_scaled=self._forecasts.has_told,
            command=self._commands.get(edge.largest, ""),
        )

    def _grow(self) -> None:
        task = self._task
        predict = partial(self._forecasts.predict, task.limit, task.step)
        while len(self._plans) < MAX_PLANS:
            seen = _planned(self._plans)
            value = next_value(seen, task.limit, task.step, task.start, predict)
            if value is None:
                break
            words = ", ".join(f"{name}={chosen}" for name, chosen in task.own.items())
            words = f"{words}{': ' if words else ''}plan {len(self._plans) + 1} at {value}"
            try:
                self._plan(value, words)
            except CompileError as error:
                hint = f"it was tried at {value}; --start and --step choose the values, as in"
                raise CompileError(f"{error}\n  {hint} --start 50 --step 50") from error

    def _plan(self, value: int, words: str) -> None:
        """Note XLA's plan for a value of the setting, made now or known from before."""
        task = self._task
        more = {task.over: value} if task.over else {}
        job = replace(task.job, settings={**task.job.settings, **more})
        found = self._known.plan(job, task.timeout, partial(self._on_progress, words))
        facts, plan = found.facts, found.plan
        if found.program is not None:
            self._forecasts.add(facts.fingerprint, found.program)
        self._forecasts.note(value, facts.fingerprint, plan.size)
        self._commands[value] = facts.command
        self._plans.append(
            FitPlan(
                value=value,
                size=plan.size,
                fits=not plan.is_refused and plan.size <= task.limit,
                cpu_seconds=round(found.cpu_seconds, 2),
                flops=facts.flops,
                device_flops=plan.flops,
                sent=plan.sent,
                seconds=plan.seconds,
                host=plan.host * parse_target(job.target).devices_per_host,
                roles=plan.roles,
            )
        )


def _planned(plans: Sequence[FitPlan]) -> dict[int, Planned]:
    return {plan.value: Planned(plan.size, plan.fits) for plan in plans}


def _line(plans: Sequence[FitPlan]) -> tuple[int, float]:
    """Bytes at 0 and bytes of one more, by the two smallest values."""
    if len(plans) < 2:
        [plan] = plans
        return (0, plan.size / plan.value) if plan.value else (plan.size, 0.0)
    left, right = sorted(plans, key=lambda plan: plan.value)[:2]
    slope = (right.size - left.size) / (right.value - left.value)
    return round(left.size - slope * left.value), slope
