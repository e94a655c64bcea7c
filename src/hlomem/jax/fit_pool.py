"""The rows of `fit` on the processes of this machine, or on a Dask cluster, as `scan` does it."""

from __future__ import annotations

from concurrent.futures import as_completed
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import HlomemError
from hlomem.fleet.workers import open_pool
from hlomem.jax.compile.serving import end_servers
from hlomem.jax.fit_rows import RowOutcome, RowTask, problem_row, search_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from hlomem.fleet.workers import WorkerPool


class _StoppedError(HlomemError):
    """The search is over, and so is the plan that was being made."""


def search_rows(
    tasks: Sequence[RowTask],
    workers: int,
    scheduler: Any,
    on_progress: Callable[[int, int, str], None],
) -> list[RowOutcome]:
    """The outcome of every task, in their order."""
    count = len(tasks)
    try:
        if scheduler is None and min(workers, count) <= 1:
            return [
                search_row(task, partial(on_progress, number, count))
                for number, task in enumerate(tasks)
            ]
        with open_pool(min(workers, count) or 1, scheduler) as pool:
            return _on_pool(pool, tasks, is_here=scheduler is None, on_progress=on_progress)
    finally:
        end_servers()


def _on_pool(
    pool: WorkerPool,
    tasks: Sequence[RowTask],
    *,
    is_here: bool,
    on_progress: Callable[[int, int, str], None],
) -> list[RowOutcome]:
    stop, count = Event(), len(tasks)

    def search_here(number: int, task: RowTask) -> RowOutcome:
        def say(words: str) -> None:
            if stop.is_set():
                raise _StoppedError("the search was stopped")
            on_progress(number, count, words)

        return search_row(task, say)

    futures: dict[Future[RowOutcome], int] = {}
    try:
        for number, task in enumerate(tasks):
            futures[
                pool.executor.submit(search_here, number, task)
                if is_here
                else pool.executor.submit(search_row, task)
            ] = number
        for done, future in enumerate(as_completed(futures), 1):
            on_progress(done - 1, count, f"row {futures[future] + 1} is done")
        return [_outcome(future, tasks[number]) for future, number in futures.items()]
    finally:
        stop.set()


def _outcome(future: Future[RowOutcome], task: RowTask) -> RowOutcome:
    """A task's outcome; where its workers were lost again and again, a row that says so."""
    error = future.exception()
    if error is None:
        return future.result()
    if type(error).__name__ != "KilledWorker":
        raise error
    problem = "its workers died, one after another, perhaps for lack of memory"
    return RowOutcome(problem_row(task.own, task.job.target, task.limit, problem))
