"""`hlomem.jax.fit`: how large a setting may be made before the program no longer fits, and where.

    hlomem.jax.fit("train:make_step", target="tpu-v5e:4x4", over="batch", axes=["data", "model"],
                   rows={"chip": ["v5e", "v6e"], "mesh": ["auto"], "remat": ["none", "full"]})

Each size is planned by XLA itself, in a child; plans of the same compiler are kept in a folder.
"""

from __future__ import annotations

import inspect
import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hlomem.api.fit_search import MAX_PLANS
from hlomem.base.errors import CommandError, HlomemError
from hlomem.base.source import visible
from hlomem.jax.compile.messages import Job
from hlomem.jax.fit_cells import make_cells
from hlomem.jax.fit_pool import search_rows
from hlomem.jax.fit_ranks import with_cheapest, with_work
from hlomem.jax.fit_rows import RowOutcome, RowTask, problem_row
from hlomem.jax.known_plans import default_cache
from hlomem.jax.target_kinds import parse_target
from hlomem.machines.capacity import Capacity, parse_capacity
from hlomem.report.data.fit import FitReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hlomem.jax.fit_cells import Cell
    from hlomem.jax.target_kinds import Target
    from hlomem.report.data.fit import FitRow


def fit(
    factory: str | Callable[..., Any],
    *,
    target: str = "cpu",
    over: str = "batch",
    rows: Mapping[str, Sequence[Any]] | None = None,
    axes: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    step: int = 1,
    start: int = 0,
    capacity: str | int | None = None,
    prices: Mapping[str, float] | None = None,
    cache: str | Path | None = None,
    timeout: float | None = None,
    imports: Sequence[str] = (),
    workers: int | None = None,
    scheduler: Any = None,
    on_progress: Callable[[int, int, str], None] = lambda _row, _rows, _words: None,
) -> FitReport:
    """The largest value of the setting `over` that fits, for every combination of `rows`.

    `factory` is one of `hlomem compile`, by name or itself, if a child can import it. With an empty
    `over` each row is one plan. `rows` has values of settings, of `chip`, `topology`, `slices` or
    `target`, and of `mesh`: sizes of the `axes`, or "auto" for all that a slice has. Values are
    multiples of `step`, from `start` on. `capacity` is what the device has, by default what the
    target's has; `prices` are those of an hour of a chip, by chip. `cache` is where plans are kept,
    by default the user's cache folder. `workers` are processes of this machine, by default one a
    core; `scheduler` is a Dask cluster or its address instead. A row takes eight plans at most; one
    that needs more says that its largest value is not proven. A row that cannot be planned says
    why; if none can be, that is the error.
    """
    if step < 1 or start < 0:
        raise CommandError("`step` is 1 or more, `start` is not negative")
    choices, given = dict(rows or {}), dict(settings or {})
    for name, count in Counter([over, *given, *choices]).items():
        if count > 1:
            raise CommandError(f"`{visible(name)}` is given twice")
    where = parse_target(target)
    job = Job(
        factory=_found_from_anywhere(spec_of(factory)) if scheduler else spec_of(factory),
        target=where.name,
        settings=given,
        imports=tuple(imports),
        has_fingerprint=True,
        home=str(Path.cwd()) if scheduler else "",
    )
    cells = make_cells(where, choices, axes)
    make_task = partial(
        RowTask,
        over=over,
        cache=str(cache or default_cache()),
        step=step,
        start=start,
        timeout=timeout,
    )
    outcomes = _outcomes(cells, job, capacity, make_task)
    tasks = [task for task in outcomes if isinstance(task, RowTask)]
    found = iter(search_rows(tasks, workers or os.cpu_count() or 1, scheduler, on_progress))
    done = [next(found) if isinstance(made, RowTask) else made for made in outcomes]
    _refuse_if_nothing(done)
    made_rows = with_work([outcome.row for outcome in done])
    return FitReport(
        factory=job.factory,
        target=where.name,
        over=over,
        step=step,
        capacity=where.capacity if capacity is None else _given(capacity),
        settings=job.settings,
        rows=tuple(with_cheapest(made_rows, cells, prices or {})),
        notes=_notes(made_rows, _limits(cells, capacity), over),
    )


def _outcomes(
    cells: Sequence[Cell],
    job: Job,
    capacity: str | int | None,
    make_task: Callable[..., RowTask],
) -> list[RowTask | RowOutcome]:
    """A task for every cell, or the outcome of one that cannot be searched."""
    made: list[RowTask | RowOutcome] = []
    for cell in cells:
        name = "" if cell.target is None else cell.target.name
        error: HlomemError = CommandError(cell.problem)
        if not cell.problem and cell.target is not None:
            try:
                limit = limit_of(cell.target, capacity)
                own_job = replace(job, target=name, settings={**job.settings, **cell.settings})
                made.append(make_task(job=own_job, own=cell.own, limit=limit.size))
                continue
            except HlomemError as wrong:
                error = wrong
        made.append(RowOutcome(problem_row(cell.own, name, 0, str(error)), error))
    return made


def _refuse_if_nothing(done: Sequence[RowOutcome]) -> None:
    """Raise the first error where no row could be planned."""
    errors = [outcome.error for outcome in done if outcome.row.problem]
    if len(errors) == len(done) and errors and errors[0] is not None:
        raise errors[0]


def _found_from_anywhere(spec: str) -> str:
    """A factory's name that also a process in another folder understands."""
    place, colon, name = spec.rpartition(":")
    return f"{Path(place).resolve()}{colon}{name}" if place.endswith(".py") else spec


def spec_of(factory: str | Callable[..., Any]) -> str:
    """The name by which a child can import a factory."""
    if isinstance(factory, str):
        return factory
    name = getattr(factory, "__qualname__", "")
    module = getattr(factory, "__module__", "")
    if not name or "<" in name:
        raise CommandError("a factory is imported by another process: give a function of a module")
    if module != "__main__":
        return f"{module}:{name}"
    try:
        return f"{Path(inspect.getfile(factory)).resolve(strict=True)}:{name}"
    except (OSError, TypeError) as error:
        problem = f"another process cannot import `{visible(name)}` of a notebook or of stdin"
        raise CommandError(f"{problem}: put it into a file") from error


def limit_of(target: Target, capacity: str | int | None) -> Capacity:
    """The memory of one device that programs may use: what is given, or else the target's."""
    own = target.capacity
    if capacity is None:
        if own is None:
            raise CommandError(f"what fits {target.name} depends on its memory: give a capacity")
        return own
    given = _given(capacity)
    if own is not None and not own.is_nominal and given.size > own.size:
        problem = f"a capacity of {given.size} bytes is more than the {own.size} of {target.name}"
        raise CommandError(f"{problem}, which its compiler plans for")
    return given


def _given(capacity: str | int) -> Capacity:
    return Capacity(size=capacity) if isinstance(capacity, int) else parse_capacity(capacity)


def _limits(cells: Sequence[Cell], capacity: str | int | None) -> list[Capacity]:
    """The memories that rows were searched in, each once."""
    if capacity is not None:
        return [_given(capacity)]
    found = [cell.target.capacity for cell in cells if cell.target is not None]
    return list({limit.name: limit for limit in found if limit is not None}.values())


def _notes(rows: Sequence[FitRow], limits: Sequence[Capacity], over: str) -> tuple[str, ...]:
    notes = []
    for limit in limits:
        if limit.is_nominal:
            more = f"; {limit.note}" if limit.note else ""
            notes.append(f"the memory of {limit.name} is nominal: programs get less{more}")
    planned = [row for row in rows if not row.problem]
    if open_rows := [row for row in planned if not row.is_proven]:
        notes.append(
            f"{len(open_rows)} of {len(planned)} rows are not proven: after {MAX_PLANS} plans"
            " values between the largest that fits and the next refused are left"
        )
    by_line = [row for row in planned if not row.is_scaled and len(row.plans) > 2]
    if over and by_line:
        notes.append(
            f"{len(by_line)} of {len(planned)} rows were searched along a line: no two of their"
            " plans told a third"
        )
    return tuple(notes)
