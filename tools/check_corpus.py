"""Every file of the corpus against what hlomem makes of it: read, printed, planned and checked.

    python -m tools.check_corpus [CHECK...] [--corpus ../shared] [--json FILE]

Each check goes through the corpus and counts, by group, how much there is and how much of it comes
out as XLA wrote it. Prints the counts, then what differs. Exits 1 if a check that admits no
exception finds one, or has nothing to look at. Plans of modules have a tool of their own,
`tools.check_plans`; `make parity` runs all of them for docs/parity.md.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import hlomem
from hlomem import hlo
from hlomem.api.load import read_source
from hlomem.base.errors import HlomemError
from hlomem.dump.compare import find_differences, first_difference
from hlomem.dump.dump import join_parts
from hlomem.dump.parts import parse_part
from hlomem.hlo.text.shape_parser import parse_shape_text
from hlomem.machines.registry import find_machine
from hlomem.view.guess_machine import choose_machine
from hlomem.view.joined import join_dump
from tools.corpus import BESIDE, check_all, entries_in, machine_of, read_facts, write_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FOLDERS = ("corpus", "real", "seeds", "seedtwins")
_DUMP_NAMES = ("buffer-assignment.txt", "values.txt", "live-range.txt", "memory-usage-report.txt")
_MODULE_NAMES = ("module.hlo", "module_compact.hlo", "before_msa.hlo")
_UNEXPLAINED = "unexplained"
_UNORDERED_MAP = '"tuning_knobs":{"'


class Checked(NamedTuple):
    """What became of one file, or of one entry."""

    group: str
    total: int
    equal: int
    differences: tuple[str, ...] = ()
    """Why the others are not equal, one for each."""
    values: int = 0


class Check(NamedTuple):
    """A question that is asked of many files."""

    about: str
    find: Callable[[Path], list[Path]]
    ask: Callable[[Path], Checked]
    is_strict: bool = True
    """Whether any difference is an error; else only one that nothing explains."""


# Reading.


def dump_files(corpus: Path) -> list[Path]:
    """All files that XLA dumps about memory."""
    return [
        path
        for folder in _FOLDERS
        for path in sorted((corpus / folder).rglob("*.txt"))
        if path.name in _DUMP_NAMES or folder == "seeds"
    ]


def check_dump(path: Path) -> Checked:
    """Whether a file prints back, byte for byte; by kind and recognised eras."""
    source = read_source(path)
    try:
        dump = join_parts(path.name, [parse_part(source)])
    except HlomemError as error:
        return Checked("unreadable", 1, 0, (str(error),))
    group = f"{dump.parts[0].kind} {''.join(era.letter for era in dump.eras)}"
    is_equal = dump.to_text() == source.text
    return Checked(group, 1, is_equal, () if is_equal else (f"{path}: printed otherwise",))


def module_files(corpus: Path) -> list[Path]:
    """All modules, those as they were published included."""
    return [
        path
        for folder in _FOLDERS[:2]
        for path in sorted((corpus / folder).rglob("*.hlo"))
        if path.name in _MODULE_NAMES
    ]


def check_module(path: Path) -> Checked:
    """Whether a module that is read, lazily and in full, prints back, byte for byte."""
    text, group = path.read_text(encoding="utf-8"), f"{path.parts[-3]} {path.name}"
    for lazy in (True, False):
        try:
            printed = hlo.format_module(hlo.parse(text, str(path), lazy=lazy))
        except HlomemError as error:
            return Checked(group, 1, 0, (str(error),))
        if printed != text:
            line, one, other = first_difference(text, printed)
            said = f"{path}:{line}: reads\n  {one}\nand is printed as\n  {other}"
            return Checked(group, 1, 0, (said,))
    return Checked(group, 1, 1)


def assignment_files(corpus: Path) -> list[Path]:
    """The files that list allocations."""
    names = {_DUMP_NAMES[0], "seeds"}
    return [path for path in dump_files(corpus) if {path.name, path.parent.name} & names]


def check_sizes(path: Path) -> Checked:
    """Whether every value has the bytes and the memory space that its shape says."""
    dump = join_parts(path.name, [parse_part(read_source(path))])
    assert dump.assignment is not None
    if (path.parent / "meta.json").exists():
        facts = read_facts(path.parent)
        machine = find_machine(facts["backend"], facts.get("chip") or "")
    else:
        machine = choose_machine(join_dump(dump), None).machine
    values = [value for allocation in dump.assignment.allocations for value in allocation.values]
    wrong = []
    for value in values:
        shape = parse_shape_text(value.shape)
        found = machine.size_of(shape), shape.memory_space, shape.text
        if found != (value.size, value.color, value.shape):
            wrong.append(f"{path}: {value.name}: {value.shape} is {value.size} bytes, not {found}")
    return Checked(machine.name, len(values), len(values) - len(wrong), tuple(wrong))


def check_texts(folder: Path) -> Checked:
    """Whether the instructions of a dump's values are those of its module, as its era prints."""
    era = read_facts(folder)["era"]
    style = hlo.TextStyle(operand_shapes=era in "ABC", async_sugar=True, proto_order=era == "K")
    module = hlo.parse((folder / "module.hlo").read_text(encoding="utf-8"))
    by_name = {instruction.name: instruction for instruction in module.iter_instructions()}
    values = hlomem.load(folder).values
    assert values is not None
    differences = []
    for value in values.values:
        instruction = by_name.get(value.name)
        if instruction is None:
            differences.append("the module does not have the instruction")
        elif (made := hlo.format_instruction(instruction, style)) != value.instruction:
            differences.append(_why(value.instruction, made))
    count = len(values.values)
    return Checked(read_facts(folder)["dump"], count, count - len(differences), tuple(differences))


def _why(expected: str, made: str) -> str:
    if _UNORDERED_MAP in expected and sorted(expected) == sorted(made):
        return "entries of a proto map (tuning_knobs) come in hash order"
    return f"{_UNEXPLAINED}: {expected} is printed as {made}"


# Planning and checking.


def check_replan(folder: Path) -> Checked:
    """Whether the plan of a dump's program, rebuilt from the dump, is the dump's own."""
    facts = read_facts(folder)
    dump = hlomem.load(folder)
    try:
        made = hlomem.replan(dump, **machine_of(facts))
    except HlomemError:
        return Checked(facts["dump"], 1, 0, ("not planned",))
    stages = [difference.stage for difference in find_differences(dump, made.dump)]
    return Checked(facts["dump"], 1, not stages, tuple(stages[:1]))


def check_verdict(folder: Path) -> Checked:
    """Whether the checker finds a plan of XLA's right, with its module."""
    facts = read_facts(folder)
    module = hlo.parse((folder / "module.hlo").read_text(encoding="utf-8"))
    machine = find_machine(facts["backend"], facts["chip"])
    verdict = hlomem.verify(hlomem.load(folder), module=module, machine=machine)
    name = "/".join(folder.parts[-2:])
    said = tuple(f"{name}: {finding.rule}: {finding.message}" for finding in verdict.findings)
    return Checked(facts["dump"], 1, not said, said, verdict.value_count)


CHECKS = {
    "dumps": Check("dump files printed back", dump_files, check_dump),
    "modules": Check("modules printed back", module_files, check_module),
    "sizes": Check("values of the size of their shape", assignment_files, check_sizes),
    "texts": Check("instruction texts", entries_in, check_texts, is_strict=False),
    "replans": Check("dumps planned alone", entries_in, check_replan, is_strict=False),
    "verdicts": Check("plans found right", entries_in, check_verdict),
}


class Counts(NamedTuple):
    """The result of a check."""

    total: int
    equal: int
    values: int
    groups: dict[str, dict[str, int]]
    """By group, how many are the `same`, and how many are not: `other`, or why."""
    rules: dict[str, int]
    """Why they are not, where that is admitted."""


def run(name: str, corpus: Path) -> tuple[Counts, list[str]]:
    """The counts of a check, and the differences in words."""
    check = CHECKS[name]
    results = check_all(check.ask, check.find(corpus))
    groups: dict[str, Counter[str]] = {}
    for result in results:
        words = groups.setdefault(result.group, Counter())
        words["same"] += result.equal
        if check.is_strict:
            words["other"] += result.total - result.equal
        else:
            words.update(result.differences)
    said = [difference for result in results for difference in result.differences]
    counts = Counts(
        total=sum(result.total for result in results),
        equal=sum(result.equal for result in results),
        values=sum(result.values for result in results),
        groups={group: dict(+words) for group, words in sorted(groups.items())},
        rules={} if check.is_strict else dict(Counter(said).most_common()),
    )
    return counts, said


def has_failed(name: str, counts: Counts) -> bool:
    """Whether a check found what it admits no exception for, or nothing to look at."""
    if not counts.total:
        return True
    if CHECKS[name].is_strict:
        return counts.total != counts.equal
    return any(rule.startswith(_UNEXPLAINED) for rule in counts.rules)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the checks that are named, or all, and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    parser.add_argument("--corpus", type=Path, default=BESIDE, help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="write the counts to this file")
    options = parser.parse_args(arguments)
    if unknown := set(options.checks) - set(CHECKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(CHECKS)}")
    found = {}
    for name in options.checks or CHECKS:
        found[name], said = run(name, options.corpus)
        counts = found[name]
        print(f"{counts.equal} of {counts.total}: {CHECKS[name].about}")
        for group, words in counts.groups.items():
            cells = ", ".join(f"{count} {word}" for word, count in words.items())
            print(f"  {group:24} {cells}")
        print(*(said if CHECKS[name].is_strict else ()), sep="\n", end="")
    write_counts(options.json, {name: counts._asdict() for name, counts in found.items()})
    return int(any(has_failed(name, counts) for name, counts in found.items()))


if __name__ == "__main__":
    sys.exit(main())
