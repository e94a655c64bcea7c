"""Plans from dumps alone against the dumps: every dump of a corpus planned anew and compared.

    python -m tools.check_replans [--corpus ../shared] [--json FILE]

Prints, for every group, how many come out the same, and what is the first stage that differs in the
others. Backend and release are told, as `plan` is told them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING

import hlomem
from hlomem.base.errors import HlomemError
from hlomem.dump.compare import find_differences
from tools.corpus import check_all, entries_in, parse_arguments, write_counts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def check_entry(entry: Path) -> tuple[str, str, str]:
    """The group and name of an entry, and the first stage that differs: empty where none does."""
    meta = json.loads((entry / "meta.json").read_text())
    package = "libtpu" if meta["backend"] == "tpu" else "jaxlib"
    dump = hlomem.load(entry)
    try:
        made = hlomem.replan(
            dump,
            backend=meta["backend"],
            chip=meta.get("chip") or "",
            era=f"{package}-{meta['versions'][package]}",
        )
    except HlomemError as error:
        sys.stderr.write(f"{entry.parent.name}/{entry.name}: {str(error).splitlines()[0]}\n")
        return meta["dump"], entry.name, "not planned"
    differences = find_differences(dump, made.dump)
    return meta["dump"], entry.name, differences[0].stage if differences else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks and prints."""
    options = parse_arguments(__doc__, arguments)
    table: dict[str, Counter[str]] = {}
    for group, name, stage in check_all(check_entry, entries_in(options.corpus)):
        table.setdefault(group, Counter())[stage or "same"] += 1
        if stage:
            sys.stdout.write(f"{group}/{name}: {stage}\n")
    for group, words in sorted(table.items()):
        cells = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
        sys.stdout.write(f"{group:20} {cells}\n")
    write_counts(options.json, table)
    return int(any(set(words) != {"same"} for words in table.values()))


if __name__ == "__main__":
    sys.exit(main())
