#!/usr/bin/env python3
"""Check every plan of the corpus that XLA made: each must be found right.

    python tools/check_verdicts.py [--corpus ../shared] [--json FILE]

Every entry is checked as `hlomem verify` does it, with its module, for the machine that `meta.json`
names. Prints each finding; exit code 1 if there is one, or if there is nothing to check.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import hlomem
from hlomem import hlo
from hlomem.machines.registry import find_machine
from tools.corpus import check_all, entries_in, parse_arguments, write_counts

if TYPE_CHECKING:
    from collections.abc import Sequence


class Checked(NamedTuple):
    """What the checker says of an entry."""

    entry: str
    values: int
    findings: list[str]


def check_entry(folder: Path) -> Checked:
    """The verdict on one plan."""
    facts = json.loads((folder / "meta.json").read_text())
    machine = find_machine(facts["backend"], facts["chip"])
    module = hlo.parse((folder / "module.hlo").read_text())
    verdict = hlomem.verify(hlomem.load(folder), module=module, machine=machine)
    findings = [f"{finding.rule}: {finding.message}" for finding in verdict.findings]
    name = "/".join(folder.parts[-2:])
    return Checked(name, verdict.value_count, findings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was found; 1 if anything was."""
    options = parse_arguments(__doc__, arguments)
    results = check_all(check_entry, entries_in(options.corpus))
    for checked in results:
        sys.stdout.writelines(f"{checked.entry}: {finding}\n" for finding in checked.findings)
    right = sum(not checked.findings for checked in results)
    values = sum(checked.values for checked in results)
    sys.stdout.write(f"{right} of {len(results)} plans found right, {values} values\n")
    write_counts(options.json, {"plans": len(results), "right": right, "values": values})
    return 0 if results and right == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
