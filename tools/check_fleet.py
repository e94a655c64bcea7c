"""Holds the rows of `hlomem scan` against the JSON of the commands, program by program.

    python -m tools.check_fleet --corpus ../shared

Prints every sum that differs, and how many programs were compared; the exit code is 1 if any does.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from hlomem.api.load import load
from hlomem.cli import main as run_command
from hlomem.fleet.rows import build_rows
from hlomem.report.data.memory import build_memory
from tools.corpus import check_all, parse_arguments, write_counts

if TYPE_CHECKING:
    from pathlib import Path

_COMMANDS = ("summary", "padding", "copies", "donate", "show")


def _say(name: str, path: Path) -> dict[str, Any]:
    """The JSON a command prints."""
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(printed):
        code = run_command([name, str(path), "--json"])
    if code != 0:
        raise RuntimeError(f"hlomem {name} {path} --json: exit {code}")
    printed.flush()
    answer: dict[str, Any] = json.loads(printed.buffer.getvalue())
    return answer


def differences_of(path: Path) -> list[str]:
    """Sums over a program's rows that are not those of the commands."""
    said = {name: _say(name, path) for name in _COMMANDS}
    rows = build_rows(build_memory(load(path)))
    return [
        f"{path}: {what}: {ours} in the tables, {theirs} by the command"
        for what, ours, theirs in _sums(rows, said)
        if ours != theirs
    ]


def _sums(
    rows: dict[str, list[dict[str, Any]]], said: dict[str, Any]
) -> list[tuple[str, Any, Any]]:
    [module] = rows["modules"]
    summary, space = said["summary"], said["summary"]["space"]
    peak = summary["peak"] or {}
    here = [row for row in rows["allocations"] if row["space"] == space["name"]]
    shared = [row for row in here if row["kind"] != "thread-local"]
    kinds = ("argument", "donated", "result", "constant", "temporary")
    donations = said["donate"]["rows"]
    listed = said["show"]["assignment"]["allocations"]
    lines = {row["key"]: row["size"] for row in peak.get("rows", ()) if peak["by"] == "line"}
    ours: dict[str, int] = {}
    for row in rows["buffers"]:
        ours[row["line"]] = ours.get(row["line"], 0) + row["size"]
    return [
        ("needs", module["needs"], space["size"]),
        ("allocations", sum(row["size"] for row in shared), space["size"]),
        ("all allocations", _total(rows["allocations"]), _total(listed)),
        ("kinds", sum(module[f"{kind}_bytes"] for kind in kinds), space["size"]),
        ("spaces", _by(rows["spaces"], "space"), _by(summary["spaces"], "name")),
        ("roles", _by(rows["roles"], "role"), _by(summary["roles"], "role")),
        ("peak", module["peak"], peak.get("size")),
        ("buffers", _total(rows["buffers"]), peak.get("size", 0)),
        ("lines", {line: ours.get(line) for line in lines}, lines),
        ("padding", module["padding_bytes"], said["padding"]["padding_at_peak"]),
        ("padded shapes", _total(rows["padding"], "padding_at_peak"), module["padding_bytes"]),
        ("copies", module["copy_bytes"], said["copies"]["size_at_peak"]),
        ("copied buffers", _total(rows["copies"]), _total(said["copies"]["rows"])),
        ("donatable", module["donatable_bytes"], said["donate"]["possible_size"]),
        ("arguments", _total(rows["donations"]), _total(donations)),
    ]


def _total(rows: list[dict[str, Any]], column: str = "size") -> int:
    return sum(row[column] for row in rows)


def _by(rows: list[dict[str, Any]], column: str) -> dict[str, int]:
    return {row[column]: row["size"] for row in rows}


def main(arguments: list[str] | None = None) -> int:
    """Compares every entry of the corpus."""
    chosen = parse_arguments(__doc__, arguments)
    entries = [path.parent for path in sorted(chosen.corpus.glob("corpus/*/*/meta.json"))]
    found = [line for lines in check_all(differences_of, entries) for line in lines]
    for line in found:
        print(line)
    print(f"{len(entries)} programs compared, {len(found)} sums differ")
    write_counts(chosen.json, {"programs": len(entries), "differences": len(found)})
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
