"""Plans against XLA's: every module of a corpus planned and compared, file by file.

    python -m tools.check_plans [--corpus ../shared] [--json FILE]

Compared with the lines inside the lists of positions and uses sorted (XLA prints them in the order
its passes left behind, see docs/parity.md), and the entries of a map in a configuration (protobuf
prints them in the order of a hash). Prints a table per group and exits 1 where anything differs.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import TYPE_CHECKING

import hlomem
from hlomem.base.errors import HlomemError
from tools.corpus import (
    check_all,
    entries_in,
    parse_arguments,
    plan_arguments,
    read_facts,
    write_counts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hlomem.dump.dump import Dump


OFFSETS = "offsets"
"""The first verdict: whether every value lies where XLA put it, whatever its number."""
FILES = {
    "-buffer-assignment-values.txt": "values.txt",
    "-live-range.txt": "live-range.txt",
    "-buffer-assignment.txt": "buffer-assignment.txt",
    "-memory-usage-report.txt": "memory-usage-report.txt",
}


def sort_lists(text: str) -> str:
    """A dump with the lines of each list of positions and of uses, and each map, in one order."""
    lists = re.compile(r"( (?:positions|uses):\n)((?:  [^\n]*\n)+)")
    maps = re.compile(r'("tuning_knobs":)\{([^{}]*)\}')
    text = maps.sub(lambda m: m[1] + ",".join(sorted(m[2].split(","))), text)
    return lists.sub(lambda m: m[1] + "".join(sorted(m[2].splitlines(keepends=True))), text)


def verdict(wanted: str, made: str | None) -> str:
    """How a file we made compares with XLA's."""
    if made is None:
        return "not written"
    return "exact" if sort_lists(made) == sort_lists(wanted) else "different"


def places(dump: Dump) -> dict[str, tuple[object, ...]]:
    """Where every value lies, by its name: whatever the numbers of allocations and values."""
    assert dump.assignment is not None
    return {
        f"{value.name}{tuple(value.index or ())}": (
            allocation.size,
            allocation.color,
            allocation.parameter,
            allocation.is_constant,
            allocation.is_thread_local,
            allocation.maybe_live_out,
            value.offset,
            value.size,
        )
        for allocation in dump.assignment.allocations
        for value in allocation.values
    }


def check_entry(entry: Path) -> tuple[str, dict[str, str]]:
    """The group of an entry, and the verdicts on its offsets and on each of its files."""
    facts = read_facts(entry)
    dump = hlomem.load(entry / "buffer-assignment.txt")
    made: dict[str, str] = {}
    verdicts = {OFFSETS: "different"}
    try:
        text = (entry / "module.hlo").read_text(encoding="utf-8")
        planned = hlomem.plan(text, **plan_arguments(facts, dump)).dump
        made = planned.texts()
        if places(planned) == places(dump):
            verdicts[OFFSETS] = "exact"
    except HlomemError as error:
        sys.stderr.write(f"{entry.parent.name}/{entry.name}: {str(error).splitlines()[0]}\n")
    for suffix, name in FILES.items():
        path = entry / name
        if path.exists():
            wanted = path.read_bytes().decode()
            verdicts[name] = verdict(wanted, made.get(f"module{suffix}"))
    return facts["dump"], verdicts


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks and prints."""
    options = parse_arguments(__doc__, arguments)
    table: dict[str, dict[str, Counter[str]]] = {}
    for group, verdicts in check_all(check_entry, entries_in(options.corpus)):
        row = table.setdefault(group, {})
        for name, word in verdicts.items():
            row.setdefault(name, Counter())[word] += 1
    for group, row in sorted(table.items()):
        for name, words in row.items():
            cells = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
            sys.stdout.write(f"{group:20} {name:24} {cells}\n")
    write_counts(options.json, table)
    return int(any(words["different"] for row in table.values() for words in row.values()))


if __name__ == "__main__":
    sys.exit(main())
