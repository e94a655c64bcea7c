"""Programs met for the first time: how XLA's plans of them compare with ours, program by program.

    python -m tools.check_contact FOLDER [--json FILE] [--name NAME...]

FOLDER/GROUP/PROGRAM is as `tools.compile_programs` and `tools.compile_xla_tests` leave it. Asked of
each: is it planned, does every value lie in an allocation of XLA's kind and size at XLA's offset,
which files are XLA's to the byte, lists of values sorted, does `verify` raise an alarm with the
module or without, does `replan` make the same plan of the dump alone. Prints a line for each answer
that is not perfect, then counts by group as a table.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import hlomem
from hlomem import hlo
from hlomem.base.errors import HlomemError
from hlomem.dump.compare import find_differences
from tools.check_plans import places, verdict
from tools.corpus import check_all, plan_arguments, read_facts, write_counts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hlomem.dump.dump import Dump

_FILES = {
    "assignment": ("-buffer-assignment.txt", "buffer-assignment.txt"),
    "live ranges": ("-live-range.txt", "live-range.txt"),
    "report": ("-memory-usage-report.txt", "memory-usage-report.txt"),
    "values": ("-buffer-assignment-values.txt", "values.txt"),
}
_COLUMNS = (
    "planned",
    "placed",
    "assignment exact",
    "live ranges exact",
    "report exact",
    "values exact",
    "values up to ids",
    "verified with the module",
    "verified alone",
    "replanned",
)


class Contact(NamedTuple):
    """The answers about one program."""

    group: str
    name: str
    good: tuple[str, ...]
    """The columns it has a point in."""
    remarks: tuple[str, ...]


def check_entry(entry: Path) -> Contact:
    """Ask everything about one program."""
    good: list[str] = []
    remarks: list[str] = []
    for question in (_planned, _verified, _replanned):
        for column, remark in question(entry):
            if remark:
                remarks.append(f"{column}: {remark}")
            else:
                good.append(column)
    return Contact(entry.parent.name, entry.name, tuple(good), tuple(remarks))


def _first_line(error: HlomemError) -> str:
    return str(error).splitlines()[0]


def _planned(entry: Path) -> Iterator[tuple[str, str]]:
    """The plan made of the module's text, held against XLA's."""
    text = (entry / "module.hlo").read_text(encoding="utf-8")
    dump = hlomem.load(entry / "buffer-assignment.txt")
    try:
        plan = hlomem.plan(text, **plan_arguments(read_facts(entry), dump))
        made = plan.dump.texts()
    except HlomemError as error:
        yield "planned", _first_line(error)
        return
    yield "planned", ""
    yield "placed", _misplaced(dump, plan.dump)
    for column, (suffix, name) in _FILES.items():
        word = verdict((entry / name).read_bytes().decode(), made.get(f"module{suffix}"))
        yield f"{column} exact", "" if word == "exact" else word
        if column == "values":
            yield "values up to ids", _different_value(hlomem.load(entry), plan.dump)


def _misplaced(dump: Dump, made: Dump) -> str:
    """The first values that lie elsewhere, and how many do."""
    wanted, found = places(dump), places(made)
    names = [name for name in wanted if wanted[name] != found.get(name)]
    names += [name for name in found if name not in wanted]
    if not names:
        return ""
    name = names[0]
    return f"{len(names)} values, first {name}: {wanted.get(name)} is {found.get(name)}"


def _different_value(dump: Dump, made: Dump) -> str:
    """The first value with other positions or uses, whatever their order and all ids."""
    wanted, found = flows(dump), flows(made)
    names = [name for name in wanted if wanted[name] != found.get(name)]
    return f"{len(names)} values, first {names[0]}" if names else ""


def flows(dump: Dump) -> dict[tuple[object, ...], tuple[set[object], ...]]:
    """Positions and uses of every value, by where it is defined."""
    assert dump.values is not None
    return {
        (value.name, tuple(value.index or ())): (
            {(position.instruction, tuple(position.index or ())) for position in value.positions},
            {(use.instruction, use.operand, tuple(use.index or ())) for use in value.uses or ()},
        )
        for value in dump.values.values
    }


def _verified(entry: Path) -> Iterator[tuple[str, str]]:
    dump = hlomem.load(entry / "buffer-assignment.txt")
    module = hlo.parse((entry / "module.hlo").read_text(encoding="utf-8"))
    for column, given in (("verified with the module", module), ("verified alone", None)):
        found = hlomem.verify(dump, module=given).findings
        rules = Counter(finding.rule for finding in found)
        yield column, ", ".join(f"{count} {rule}" for rule, count in rules.items())


def _replanned(entry: Path) -> Iterator[tuple[str, str]]:
    dump = hlomem.load(entry / "buffer-assignment.txt")
    try:
        made = hlomem.replan(dump)
    except HlomemError as error:
        yield "replanned", _first_line(error)
        return
    differences = find_differences(dump, made.dump)
    first = differences[0] if differences else None
    yield "replanned", f"{first.stage} line {first.line}" if first else ""


def _table(contacts: Sequence[Contact]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for contact in contacts:
        row = table.setdefault(contact.group, dict.fromkeys(("programs", *_COLUMNS), 0))
        row["programs"] += 1
        for column in contact.good:
            row[column] += 1
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, help="write counts and remarks to this file")
    parser.add_argument("--name", nargs="*", default=[], help="these programs only")
    options = parser.parse_args(arguments)
    found = [path.parent for path in sorted(options.folder.glob("*/*/meta.json"))]
    entries = [path for path in found if not options.name or path.name in options.name]
    contacts = check_all(check_entry, entries)
    for contact in contacts:
        for remark in contact.remarks:
            sys.stdout.write(f"{contact.group}/{contact.name}: {remark}\n")
    table = _table(contacts)
    sys.stdout.write(f"| target | {' | '.join(('programs', *_COLUMNS))} |\n")
    for group, row in table.items():
        sys.stdout.write(f"| {group} | {' | '.join(map(str, row.values()))} |\n")
    remarks = {f"{found.group}/{found.name}": found.remarks for found in contacts if found.remarks}
    write_counts(options.json, {"table": table, "remarks": remarks})
    return int(bool(remarks))


if __name__ == "__main__":
    sys.exit(main())
