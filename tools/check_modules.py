#!/usr/bin/env python3
"""Read every module of the corpus, lazily and in full, and print it back byte for byte.

    python tools/check_modules.py [--corpus ../shared] [--json FILE]

Goes through every `module.hlo`, `module_compact.hlo` and `before_msa.hlo` below the `corpus` and
`real` folders. Prints a table, one row per group of files, then every difference. Exit code 1 if
there is one, or if there is nothing to read.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hlomem.base.errors import ParseError
from hlomem.hlo import format_module, parse
from tools.corpus import check_all, parse_arguments, write_counts

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = ("module.hlo", "module_compact.hlo", "before_msa.hlo")


def difference(path: Path) -> str:
    """What is wrong with the text printed for a module; empty where it is the one read."""
    text = path.read_text(encoding="utf-8")
    for lazy in (True, False):
        try:
            printed = format_module(parse(text, str(path), lazy=lazy))
        except ParseError as error:
            return str(error)
        if printed != text:
            return first_difference(path, text, printed)
    return ""


def first_difference(path: Path, text: str, printed: str) -> str:
    """The first line in which two texts differ."""
    pairs = zip(text.split("\n"), printed.split("\n"), strict=False)
    for number, (one, two) in enumerate(pairs, start=1):
        if one != two:
            return f"{path}:{number}: reads\n  {one[:200]}\nand is printed as\n  {two[:200]}"
    return f"{path}: {len(text)} characters become {len(printed)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check all modules; 1 where one is not printed back as it was."""
    options = parse_arguments(__doc__, arguments)
    paths = [
        path
        for folder in ("corpus", "real")
        for path in sorted((options.corpus / folder).rglob("*.hlo"))
        if path.name in NAMES
    ]
    differences = dict(zip(paths, check_all(difference, paths), strict=True))
    groups = {path: f"{path.parts[-3]} {path.name}" for path in paths}
    total = Counter(groups.values())
    equal = Counter(groups[path] for path in paths if not differences[path])
    print(f"{'group':44}{'modules':>8}{'equal':>8}")
    for group in [*sorted(total), "all"]:
        counts = (total.total(), equal.total()) if group == "all" else (total[group], equal[group])
        print(f"{group:44}{counts[0]:8}{counts[1]:8}")
    found = [what for what in differences.values() if what]
    print(*found, sep="\n", end="\n" if found else "")
    write_counts(
        options.json,
        {
            "modules": total.total(),
            "equal": equal.total(),
            "groups": {group: [total[group], equal[group]] for group in sorted(total)},
        },
    )
    return 1 if found or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
