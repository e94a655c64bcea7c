"""Resident programs: arguments of all stay; the rest counts for the one that needs most."""

from __future__ import annotations

from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from hlomem.base.errors import CommandError, UnknownNameError
from hlomem.base.sizes import format_bytes
from hlomem.base.source import visible
from hlomem.fleet.answers import Answer
from hlomem.fleet.tables import literal
from hlomem.report.screens.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.fleet.asking import LockedTables

_SUGGESTED = 5
_UNNAMED = "parameter "


def together(tables: LockedTables, run: str, names: Sequence[str]) -> Answer:
    programs = _find(tables, run, names)
    arguments = _arguments(tables, run, [program["id"] for program in programs])
    shared = _shared_size(arguments)
    apart = sum(row["size"] for row in arguments)
    rows = list(_rows(programs, arguments))
    rest = max(row["rest"] for row in rows)
    codes = [program["code_bytes"] for program in programs]
    code = sum(size or 0 for size in codes)
    totals = {
        "programs": len(rows),
        "arguments_shared": shared,
        "arguments_apart": apart,
        "rest": rest,
        "code": code,
        "shared": shared + rest + code,
        "apart": apart + rest + code,
    }
    sizes = f"{format_bytes(totals['shared'])} if equal arguments are shared"
    words = f"{sizes}, {format_bytes(totals['apart'])} if each program has its own"
    return Answer(
        title=f"{plural(len(rows), 'program')} of run {run} resident at once: {words}",
        columns=("needs", "arguments", "shared", "rest", "name", "place"),
        sizes=("needs", "arguments", "shared", "rest"),
        rows=tuple(rows),
        totals=totals,
        notes=_notes(totals, codes.count(None)),
    )


def _notes(totals: dict[str, int], unknown: int) -> tuple[str, ...]:
    rest = format_bytes(totals["rest"])
    said = [f"temporaries, results and constants count once, for the largest program: {rest}"]
    if unknown:
        said.append(f"the code of {plural(unknown, 'program')} is unknown and not counted")
    return tuple(said)


def _find(tables: LockedTables, run: str, names: Sequence[str]) -> list[dict[str, Any]]:
    if not names:
        raise CommandError("`together` needs names of programs, or patterns such as `decode*`")
    known = tables.rows(
        "SELECT id, name, place, needs, space, code_bytes FROM modules"
        f" WHERE run = {literal(run)} AND status = 'ok' ORDER BY needs DESC, place"
    )
    for name in names:
        if not any(_is_meant(program, name) for program in known):
            titles = sorted({str(program["name"]) for program in known})
            near = get_close_matches(name, titles, n=_SUGGESTED, cutoff=0.4)
            hint = f"; there are {', '.join(map(visible, near))}" if near else ""
            raise UnknownNameError(f"no program `{visible(name)}` in run {run}{hint}")
    return [program for program in known if any(_is_meant(program, name) for name in names)]


def _is_meant(program: dict[str, Any], name: str) -> bool:
    return name == program["id"] or fnmatchcase(str(program["name"]), name)


def _arguments(tables: LockedTables, run: str, ids: list[str]) -> list[dict[str, Any]]:
    chosen = ", ".join(map(literal, ids))
    return tables.rows(
        "SELECT a.id, a.parameter, a.shape, a.size FROM allocations a"
        " JOIN modules m ON a.run = m.run AND a.id = m.id AND a.space = m.space"
        f" WHERE a.run = {literal(run)} AND a.id IN ({chosen})"
        " AND a.kind IN ('arguments', 'donated arguments')"
    )


def _identity(row: dict[str, Any]) -> tuple[str, str, int] | None:
    """An argument's path, shape and size; None if only its number is known."""
    path = str(row["parameter"])
    return None if path.startswith(_UNNAMED) else (path, str(row["shape"]), int(row["size"]))


def _shared_size(arguments: list[dict[str, Any]]) -> int:
    named = {identity for row in arguments if (identity := _identity(row)) is not None}
    own = sum(int(row["size"]) for row in arguments if _identity(row) is None)
    return own + sum(size for _, _, size in named)


def _rows(
    programs: list[dict[str, Any]], arguments: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    of_program: dict[str, list[dict[str, Any]]] = {program["id"]: [] for program in programs}
    holders: dict[tuple[str, str, int] | None, set[str]] = {}
    for row in arguments:
        of_program[row["id"]].append(row)
        holders.setdefault(_identity(row), set()).add(row["id"])
    holders.pop(None, None)
    for program in programs:
        mine = of_program[program["id"]]
        size = sum(row["size"] for row in mine)
        shared = (row["size"] for row in mine if len(holders.get(_identity(row), ())) > 1)
        yield {
            "name": program["name"],
            "place": program["place"],
            "needs": program["needs"],
            "arguments": size,
            "shared": sum(shared),
            "rest": program["needs"] - size,
        }
