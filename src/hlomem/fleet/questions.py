"""Predefined questions about one run of a store; see also `growth` and `residency`."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from hlomem.base.errors import CommandError, UnknownNameError
from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.fleet.answers import Answer
from hlomem.fleet.asking import LockedTables
from hlomem.fleet.growth import grown
from hlomem.fleet.residency import together
from hlomem.fleet.tables import by_program, literal
from hlomem.machines.capacity import parse_capacity
from hlomem.machines.registry import platform_of
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIMIT = 20


class Asked(Struct, frozen=True, kw_only=True):
    tables: LockedTables
    run: str
    names: tuple[str, ...] = ()
    capacity: str | None = None
    since: str | None = None
    limit: int = LIMIT

    @property
    def is_run(self) -> str:
        return f"run = {literal(self.run)}"

    def rows(self, sql: str) -> tuple[dict[str, Any], ...]:
        return tuple(self.tables.rows(sql))

    def totals(self, sql: str) -> dict[str, int]:
        """A query's only row, with 0 for NULL."""
        [row] = self.tables.rows(sql)
        return {name: int(value or 0) for name, value in row.items()}


def answer(
    store: str,
    question: str,
    names: Sequence[str] = (),
    *,
    run: str | None = None,
    capacity: str | None = None,
    since: str | None = None,
    limit: int = LIMIT,
) -> Answer:
    if question not in QUESTIONS:
        raise CommandError(f"unknown question `{visible(question)}`: {', '.join(QUESTIONS)}")
    tables = LockedTables(store)
    asked = Asked(
        tables=tables,
        run=choose_run(tables, run),
        names=tuple(names),
        capacity=capacity,
        since=None if since is None else choose_run(tables, since),
        limit=limit,
    )
    return replace(QUESTIONS[question](asked), question=question, run=asked.run)


def choose_run(tables: LockedTables, wanted: str | None) -> str:
    runs = [str(row["run"]) for row in tables.rows("SELECT run FROM runs ORDER BY first, run")]
    if not runs:
        raise CommandError("nothing was scanned into this store yet: hlomem scan PATH -o STORE")
    if wanted is None:
        return runs[-1]
    if wanted not in runs:
        near = get_close_matches(wanted, runs, n=3, cutoff=0.3) or runs[-3:]
        raise UnknownNameError(
            f"no run `{visible(wanted)}` in this store; such as {', '.join(near)}"
        )
    return wanted


def _top(asked: Asked) -> Answer:
    rows = asked.rows(
        "SELECT name, needs, peak, backend, place FROM modules"
        f" WHERE {asked.is_run} AND status = 'ok' ORDER BY needs DESC, place LIMIT {asked.limit}"
    )
    totals = asked.totals(
        "SELECT count(*) FILTER (status = 'ok') AS programs,"
        " count(*) FILTER (status <> 'ok') AS errors, max(needs) AS most"
        f" FROM modules WHERE {asked.is_run}"
    )
    return Answer(
        title=f"{plural(totals['programs'], 'program')} in run {asked.run}, by needs",
        columns=("needs", "peak", "backend", "name", "place"),
        sizes=("needs", "peak"),
        rows=rows,
        totals=totals,
        notes=_error_notes(totals["errors"]),
    )


def _error_notes(count: int) -> tuple[str, ...]:
    if not count:
        return ()
    query = "SELECT source, error FROM modules WHERE status = 'error'"
    return (f"{plural(count, 'input')} could not be read: {query}",)


def _over(asked: Asked) -> Answer:
    if asked.capacity is None:
        raise CommandError("`over` needs --capacity: 16GiB, v5e, h100, …")
    capacity = parse_capacity(asked.capacity)
    platform = platform_of(capacity.name) if capacity.name else ""
    of_chip = f" AND backend = {literal(platform)}" if platform else ""
    measured = f"{asked.is_run} AND status = 'ok'{of_chip}"
    totals = asked.totals(
        f"SELECT count(*) AS programs, count(*) FILTER (needs > {capacity.size}) AS over"
        f" FROM modules WHERE {measured}"
    )
    rows = asked.rows(
        f"SELECT name, needs, needs - {capacity.size} AS over,"
        f" round(100.0 * needs / {capacity.size}, 1)::DOUBLE AS percent, place FROM modules"
        f" WHERE {measured} ORDER BY needs DESC, place LIMIT {asked.limit}"
    )
    what = capacity.label or "the device"
    of = f"{totals['over']} of {plural(totals['programs'], 'program')}"
    words = f"{of} need more than the {format_bytes(capacity.size)} of {what}"
    kind = (f"only programs for {platform} are compared",) if platform else ()
    nominal = f"{format_bytes(capacity.size)} is nominal: programs get less"
    said = (*kind, *((nominal,) if capacity.is_nominal else ()))
    return Answer(
        title=f"Run {asked.run}: {words}",
        columns=("percent", "needs", "over", "name", "place"),
        sizes=("needs", "over"),
        rows=rows,
        totals={**totals, "capacity": capacity.size},
        notes=said,
    )


def _padding(asked: Asked) -> Answer:
    totals = asked.totals(
        "SELECT sum(padding_bytes) AS padding, sum(peak) AS peak,"
        f" count(*) FILTER (padding_bytes > 0) AS programs FROM modules WHERE {asked.is_run}"
    )
    rows = asked.rows(
        "SELECT sum(padding_at_peak)::BIGINT AS padding, count(DISTINCT id) AS programs, shape,"
        " any_value(fix) AS fix, arg_max(name, padding_at_peak) AS worst"
        f" FROM padding WHERE {asked.is_run} AND padding_at_peak > 0"
        f" GROUP BY shape ORDER BY padding DESC, shape LIMIT {asked.limit}"
    )
    amount, of = format_bytes(totals["padding"]), format_bytes(totals["peak"])
    words = f"padding is {amount} of the {of} at all peaks together"
    return Answer(
        title=f"Run {asked.run}: {words}, in {plural(totals['programs'], 'program')}",
        columns=("padding", "programs", "shape", "worst", "fix"),
        sizes=("padding",),
        rows=rows,
        totals=totals,
    )


def _donations(asked: Asked) -> Answer:
    totals = asked.totals(
        "SELECT sum(donatable_bytes) AS possible, sum(lost_bytes) AS lost,"
        f" sum(donated_bytes) AS used FROM modules WHERE {asked.is_run}"
    )
    rows = asked.rows(
        "SELECT sum(size)::BIGINT AS size, count(DISTINCT id) AS programs, state, argument,"
        " arg_max(name, size) AS largest, any_value(why) AS why"
        f" FROM donations WHERE {asked.is_run} AND state IN ('lost', 'possible')"
        f" GROUP BY state, argument ORDER BY size DESC, argument LIMIT {asked.limit}"
    )
    possible, lost = format_bytes(totals["possible"]), format_bytes(totals["lost"])
    words = f"{possible} of arguments could be donated, {lost} are donated but not reused"
    return Answer(
        title=f"Run {asked.run}, all programs together: {words}",
        columns=("size", "programs", "state", "argument", "largest", "why"),
        sizes=("size",),
        rows=rows,
        totals=totals,
    )


def _lines(asked: Asked) -> Answer:
    totals = asked.totals(
        f"SELECT sum(size) AS size, count(DISTINCT line) AS lines FROM buffers WHERE {asked.is_run}"
    )
    rows = asked.rows(
        "SELECT sum(size)::BIGINT AS size, count(*) AS programs, max(size) AS most,"
        f" arg_max(name, size) AS largest, line FROM ({by_program(asked.is_run)})"
        f" GROUP BY line ORDER BY size DESC, line LIMIT {asked.limit}"
    )
    words = f"{format_bytes(totals['size'])} at the peaks of all programs, by source line"
    return Answer(
        title=f"Run {asked.run}: {words}",
        columns=("size", "programs", "most", "largest", "line"),
        sizes=("size", "most"),
        rows=rows,
        totals=totals,
    )


def _grown(asked: Asked) -> Answer:
    if asked.since is None:
        raise CommandError("`grown` needs --since RUN: the run to compare with")
    return grown(asked.tables, asked.since, asked.run, asked.limit)


QUESTIONS: dict[str, Callable[[Asked], Answer]] = {
    "top": _top,
    "over": _over,
    "grown": _grown,
    "padding": _padding,
    "donations": _donations,
    "lines": _lines,
    "together": lambda asked: together(asked.tables, asked.run, asked.names),
}
