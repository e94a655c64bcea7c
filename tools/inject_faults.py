"""The checker against faults: every plan of a corpus with one thing wrong, many times over.

    python -m tools.inject_faults [--corpus ../shared] [--rounds 1] [--every 1] [--json FILE]

Each kind of fault of `tests/check/faults` is put into each plan `--rounds` times; `--every 10`
takes each tenth plan. An oracle, which looks at every pair of values, labels it harmful or
equivalent, or leaves it. The checker sees it twice, with the module and without. Prints every miss
and false alarm with what is needed to make it again, then the figures for docs/verifier.md, and
exits 1 where there were any.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import hlomem
from hlomem import hlo
from hlomem.check.verify import verify
from hlomem.machines.options import options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import Release, parse_version
from tests.check.faults import KINDS, Injector, judge
from tools.corpus import BESIDE, check_all, entries_in, write_counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlomem.check.findings import Verdict
    from tests.check.faults import Label

MAX_VALUES = 1500
"""The oracle looks at every pair: larger plans are left to others."""


def check_entry(job: tuple[Path, int]) -> tuple[Counter[str], list[str]]:
    """How the checker did on the faults of one plan, and what it got wrong."""
    entry, rounds = job
    counts, wrong = Counter[str](), list[str]()
    meta = json.loads((entry / "meta.json").read_text())
    dump = hlomem.load(entry)
    if dump.values is None or len(dump.values.values) > MAX_VALUES:
        return counts, wrong
    module = hlo.parse((entry / "module.hlo").read_text(encoding="utf-8"))
    machine = find_machine(meta["backend"], meta.get("chip") or "")
    release = Release(machine.package, parse_version(meta["versions"][machine.package]))
    machine = options_for(machine, release).machine
    injector = Injector(dump, module, machine, seed=crc32(str(entry).encode()))
    for kind, maker in KINDS.items():
        for number in range(rounds):
            fault = injector.make(kind, maker)
            if fault is None:
                continue
            label = judge(dump, fault, module)
            counts["faults"] += 1
            counts[_word(label)] += 1
            by_module = fault.by_module or label.by_module
            counts["shown by the module only"] += by_module
            for how, known in (("alone", None), ("with the module", module)):
                verdict = verify(fault.dump, module=known, machine=machine)
                if label.harmful is None or (known is None and by_module):
                    continue
                for problem in _problems(label, verdict):
                    counts[f"{problem}, {how}"] += 1
                    wrong.append(f"{problem}, {how}: {kind} {number} in {entry}")
            counts["pairs"] += bool(label.pairs)
    return counts, wrong


def _word(label: Label) -> str:
    return {True: "harmful", False: "equivalent", None: "undecided"}[label.harmful]


def _problems(label: Label, verdict: Verdict) -> list[str]:
    if bool(verdict.findings) is not label.harmful:
        return ["missed" if label.harmful else "false alarm"]
    named = {frozenset(each.id for each in finding.values) for finding in verdict.findings}
    return ["wrong pair"] if label.pairs and not named & label.pairs else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Injects and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, default=BESIDE, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the counts to this file")
    options = parser.parse_args(arguments)
    entries = entries_in(options.corpus)
    counts, wrong = Counter[str](), list[str]()
    jobs = [(entry, options.rounds) for entry in entries[:: options.every]]
    for some, problems in check_all(check_entry, jobs):
        counts += some
        wrong += problems
    sys.stdout.writelines(f"{each}\n" for each in wrong)
    sys.stdout.writelines(f"{count:8} {word}\n" for word, count in sorted(counts.items()))
    sys.stdout.write(f"{len(KINDS):8} kinds\n")
    write_counts(options.json, dict(counts))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
