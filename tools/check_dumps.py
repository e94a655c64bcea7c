"""Dumps: every file of the corpus read and printed back, byte for byte.

    python -m tools.check_dumps [--corpus ../shared] [--json FILE]

Counts, by kind and recognised era, the files that print back as they were and the notes that were
made about them. Exits 1 where a byte differs or a file cannot be read.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from hlomem.api.load import read_source
from hlomem.base.errors import HlomemError
from hlomem.dump.dump import join_parts
from hlomem.dump.parts import parse_part
from tools.corpus import check_all, parse_arguments, write_counts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAMES = ("buffer-assignment.txt", "values.txt", "live-range.txt", "memory-usage-report.txt")


def check_file(path: Path) -> tuple[str, bool]:
    """Kind and eras of a file, and whether it prints back."""
    source = read_source(path)
    try:
        dump = join_parts(path.name, [parse_part(source)])
    except HlomemError as error:
        sys.stderr.write(f"{error}\n")
        return "unreadable", False
    eras = "".join(era.letter for era in dump.eras)
    return f"{dump.parts[0].kind} {eras}", dump.to_text() == source.text


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks and prints."""
    options = parse_arguments(__doc__, arguments)
    paths = sorted(
        path
        for path in options.corpus.rglob("*.txt")
        if path.name in NAMES or path.parent.name == "seeds"
    )
    results = check_all(check_file, paths)
    total = Counter(kind for kind, _ in results)
    equal = Counter(kind for kind, is_equal in results if is_equal)
    for kind in sorted(total):
        sys.stdout.write(f"{kind:24} {total[kind]:7} {equal[kind]:7}\n")
    sys.stdout.write(f"{'all':24} {total.total():7} {equal.total():7}\n")
    write_counts(options.json, {"files": total.total(), "equal": equal.total()})
    return int(total != equal)


if __name__ == "__main__":
    sys.exit(main())
