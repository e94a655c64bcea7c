"""Plans against XLA's: every module of a corpus planned and compared, file by file.

    python -m tools.check_plans [--corpus ../shared] [--json FILE] [--groups cpu-]

A file can be exact; the same but for the order of the lines inside the lists of positions and
uses (which XLA prints in the order its passes left behind, see docs/parity.md); or different.
Prints a table per group and exits 1 where anything is different.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from multiprocessing import Pool
from pathlib import Path

import hlomem
from hlomem.errors import HlomemError

FILES = {
    "-buffer-assignment-values.txt": "values.txt",
    "-live-range.txt": "live-range.txt",
    "-buffer-assignment.txt": "buffer-assignment.txt",
    "-memory-usage-report.txt": "memory-usage-report.txt",
}


def sort_lists(text: str) -> str:
    """A dump with the lines of each list of positions and of uses in one order."""
    lists = re.compile(r"( (?:positions|uses):\n)((?:  [^\n]*\n)+)")
    return lists.sub(lambda m: m[1] + "".join(sorted(m[2].splitlines(keepends=True))), text)


def verdict(wanted: str, made: str | None) -> str:
    """How a file we made compares with XLA's."""
    if made is None:
        return "not written"
    if made == wanted:
        return "exact"
    return "order of lists" if sort_lists(made) == sort_lists(wanted) else "different"


def check_entry(entry: Path) -> tuple[str, dict[str, str]]:
    """The group of an entry, and the verdict on each of its files."""
    meta = json.loads((entry / "meta.json").read_text())
    package = "libtpu" if meta["backend"] == "tpu" else "jaxlib"
    try:
        made = hlomem.plan(
            (entry / "module.hlo").read_text(encoding="utf-8"),
            backend=meta["backend"],
            chip=meta["chip"],
            era=f"{package}-{meta['versions'][package]}",
            schedule=None if meta["scheduled"] else hlomem.load(entry / "buffer-assignment.txt"),
        ).dump.texts()
    except HlomemError as error:
        made = {}
        sys.stderr.write(f"{entry.parent.name}/{entry.name}: {str(error).splitlines()[0]}\n")
    verdicts = {}
    for suffix, name in FILES.items():
        path = entry / name
        if path.exists():
            wanted = path.read_bytes().decode()
            verdicts[name] = verdict(wanted, made.get(f"module{suffix}"))
    return meta["dump"], verdicts


def main() -> int:
    """Checks and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, default=Path("../shared"))
    parser.add_argument("--groups", default="", help="only groups whose name begins so")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    entries = [
        path.parent
        for path in sorted(options.corpus.glob("*/*/*/meta.json"))
        if json.loads(path.read_text())["dump"].startswith(options.groups)
    ]
    table: dict[str, dict[str, Counter[str]]] = {}
    with Pool(2) as pool:
        for group, verdicts in pool.imap(check_entry, entries, chunksize=4):
            row = table.setdefault(group, {})
            for name, word in verdicts.items():
                row.setdefault(name, Counter())[word] += 1
    for group, row in sorted(table.items()):
        cells = [f"{name} {dict(words)}" for name, words in row.items()]
        sys.stdout.write(f"{group:20} {'  '.join(cells)}\n")
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n")
    return int(any(words["different"] for row in table.values() for words in row.values()))


if __name__ == "__main__":
    sys.exit(main())
