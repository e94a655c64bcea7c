"""Growth between runs, and its causes; programs are paired by path, folder, name and arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hlomem.base.errors import HlomemError
from hlomem.base.sizes import format_bytes
from hlomem.fleet.answers import Answer
from hlomem.fleet.reopen import opened_memory
from hlomem.fleet.tables import literal
from hlomem.report.data.diff import build_diff
from hlomem.report.screens.diff_text import signed
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from hlomem.fleet.asking import LockedTables

    Pair = tuple[dict[str, Any], dict[str, Any]]

_MAX_CAUSES = 3
_WAYS: tuple[Callable[[dict[str, Any]], Hashable], ...] = (
    lambda row: (row["place"], row["program"]),
    lambda row: (row["steady"], row["program"]),
    lambda row: (row["folder"], row["name"], row["arguments"]),
    lambda row: (row["name"], row["arguments"]),
    lambda row: row["name"],
)
"""Keys that pair programs of two runs, strictest first."""
STEADY_PLACE = r"regexp_replace(place, 'module_\d+\.|\.cl_\d+', '', 'g')"
"""A path without the numbers that change with every process and XLA release."""


def grown(tables: LockedTables, before: str, after: str, limit: int) -> Answer:
    """The programs that need more than in another run, with causes for the largest."""
    old, new = _programs(tables, before), _programs(tables, after)
    pairs = list(pair_programs(old, new))
    more = [pair for pair in pairs if _delta(pair) > 0]
    less = [pair for pair in pairs if _delta(pair) < 0]
    more.sort(key=lambda pair: (-_delta(pair), pair[1]["place"]))
    rows = [_row(tables, pair, (before, after)) for pair in more[:limit]]
    totals = {
        "grown": len(more),
        "grown_bytes": sum(map(_delta, more)),
        "shrunk": len(less),
        "shrunk_bytes": sum(map(_delta, less)),
        "same": len(pairs) - len(more) - len(less),
        "new": len(new) - len(pairs),
        "gone": len(old) - len(pairs),
    }
    words = f"{plural(len(more), 'program')} grew by {format_bytes(totals['grown_bytes'])} in all"
    others = ", ".join(f"{totals[name]} {name}" for name in ("shrunk", "same", "new", "gone"))
    return Answer(
        title=f"From {before} to {after}: {words}; {others}",
        columns=("delta", "before", "after", "name", "place"),
        below="causes",
        sizes=("delta", "before", "after"),
        rows=tuple(rows),
        totals=totals,
    )


def _programs(tables: LockedTables, run: str) -> list[dict[str, Any]]:
    return tables.rows(
        "SELECT id, name, place, program, arguments, needs, m.source, m.key, recipe,"
        f" regexp_replace(place, '/?[^/]*$', '') AS folder, {STEADY_PLACE} AS steady"
        " FROM modules m JOIN units u USING (run, unit)"
        f" WHERE run = {literal(run)} AND status = 'ok' ORDER BY place, id"
    )


def pair_programs(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[Pair]:
    taken_old, taken_new = set[str](), set[str]()
    for way in _WAYS:
        groups = _groups(old, taken_old, way)
        for key, members in _groups(new, taken_new, way).items():
            partners = groups.get(key, [])
            if len(members) == 1 and len(partners) == 1:
                taken_old.add(partners[0]["id"])
                taken_new.add(members[0]["id"])
                yield partners[0], members[0]


def _groups(
    programs: list[dict[str, Any]], taken: set[str], way: Callable[[dict[str, Any]], Hashable]
) -> dict[Hashable, list[dict[str, Any]]]:
    found: dict[Hashable, list[dict[str, Any]]] = {}
    for program in programs:
        if program["id"] not in taken:
            found.setdefault(way(program), []).append(program)
    return found


def _delta(pair: Pair) -> int:
    return int(pair[1]["needs"]) - int(pair[0]["needs"])


def _row(tables: LockedTables, pair: Pair, runs: tuple[str, str]) -> dict[str, Any]:
    try:
        causes, told_by = _causes(pair), "diff"
    except HlomemError:
        causes, told_by = _roles_that_grew(tables, pair, runs), "roles"
    old, new = pair
    return {
        "name": new["name"],
        "place": new["place"],
        "before": old["needs"],
        "after": new["needs"],
        "delta": _delta(pair),
        "causes": causes,
        "told_by": told_by,
    }


def _causes(pair: Pair) -> list[str]:
    with opened_memory(pair[0]) as before, opened_memory(pair[1]) as after:
        found = build_diff(before, after)
    return [f"{signed(cause.delta)} {cause.text}" for cause in found.causes[:_MAX_CAUSES]]


def _roles_that_grew(tables: LockedTables, pair: Pair, runs: tuple[str, str]) -> list[str]:
    """The changes of roles in the tables, for sources that are gone."""
    old, new = (
        f"SELECT role, size FROM roles WHERE run = {literal(run)} AND id = {literal(row['id'])}"
        for run, row in zip(runs, pair, strict=True)
    )
    rows = tables.rows(
        "SELECT coalesce(n.role, o.role) AS role,"
        " (coalesce(n.size, 0) - coalesce(o.size, 0))::BIGINT AS delta"
        f" FROM ({new}) n FULL JOIN ({old}) o ON n.role = o.role"
        " ORDER BY abs(delta) DESC, role"
    )
    grown = [f"{signed(row['delta'])} {row['role']}" for row in rows if row["delta"]]
    return grown[:_MAX_CAUSES]
