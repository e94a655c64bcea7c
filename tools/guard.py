"""Whether hlomem still plans as a release of XLA does, and which rule moved where it does not.

    python -m tools.guard [--jaxlib VERSION] [--libtpu VERSION] [--write docs/guard.md]

Installs a release in an environment of its own under `.guard`, compiles `tools/guard_suite.py`
there, plans each program and compares; with `--libtpu` for a TPU v5e, otherwise for CPU. If a plan
differs, each rule of `Options` is inverted to see which one explains XLA's plan. Without versions
the newest release of jaxlib is taken. Exits 1 if anything but ids moved.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

import hlomem
from hlomem import hlo
from hlomem.api.plan import Plan, files_of, preset_of
from hlomem.assign.preset import NO_PRESET
from hlomem.base.errors import HlomemError
from hlomem.machines.options import Options, options_for
from hlomem.machines.registry import find_machine
from hlomem.machines.releases import find_release
from hlomem.pipeline import run_stages
from tools.check_contact import flows
from tools.check_plans import places
from tools.compile_xla_tests import keep_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hlomem.dump.dump import Dump

    MakeOptions = Callable[[str, str], Options]

HOME = Path(".guard")
TOPOLOGY = "v5e:2x2"
SUITE = Path(__file__).with_name("guard_suite.py")
NEWEST = "newest"
ASPECTS = ("values", "live ranges", "places", "ids")
_HEAD = "| release | programs | values | live ranges | places | ids | moved |\n"
_ROWS = f"{_HEAD}|---|---|---|---|---|---|---|\n"


class Finding(NamedTuple):
    """What is true of one program."""

    program: str
    differs: str
    """The first aspect that is not XLA's; empty where all are."""
    rule: str
    """The rule that explains XLA's plan when turned over, or empty."""
    problem: str = ""


def examine(entry: Path, options: Options) -> Finding:
    """Plan the program of an entry and compare."""
    dump = hlomem.load(entry / "buffer-assignment.txt")
    try:
        wanted = _aspects(dump)
        differs = _first_difference(wanted, _plan(entry, dump, options))
    except HlomemError as error:
        return Finding(entry.name, ASPECTS[0], "", str(error).splitlines()[0])
    rule = next(_explaining(entry, dump, wanted, options, differs), "") if differs else ""
    return Finding(entry.name, differs, rule)


def _explaining(
    entry: Path, dump: Dump, wanted: dict[str, object], options: Options, differs: str
) -> Iterator[str]:
    """The rules that explain more of XLA's plan when turned over, the best first."""
    reached: dict[str, int] = {}
    for name in Options.__struct_fields__:
        for other in _others(getattr(options, name)):
            try:
                plan = _plan(entry, dump, replace(options, **{name: other}))
            except HlomemError:
                continue
            found = _first_difference(wanted, plan)
            place = ASPECTS.index(found) if found else len(ASPECTS)
            reached[name] = max(place, reached.get(name, 0))
    best = max(reached.values(), default=0)
    if best > ASPECTS.index(differs):
        yield from (name for name, place in reached.items() if place == best)


def _others(value: object) -> list[object]:
    """What a rule may be instead."""
    if isinstance(value, bool):
        return [not value]
    spaces = [frozenset[int](), frozenset({0}), frozenset({0, 6})]
    return [other for other in spaces if other != value] if isinstance(value, frozenset) else []


def _plan(entry: Path, dump: Dump, options: Options) -> dict[str, object]:
    module = hlo.parse((entry / "module.hlo").read_text(encoding="utf-8"))
    machine = options.machine
    preset = NO_PRESET if machine.preset_color is None else preset_of(module, dump, machine)
    stages = run_stages(module, options, preset=preset)
    assert options.release is not None
    files = files_of("module", dump.era, options.release)
    return _aspects(Plan(stages, "module", dump.era, files, {}, ()).dump)


def _aspects(dump: Dump) -> dict[str, object]:
    assert dump.assignment is not None
    numbers = {
        (value.name, value.index): value.id
        for allocation in dump.assignment.allocations
        for value in allocation.values
    }
    ranges = dump.live_ranges.ranges if dump.live_ranges else ()
    return {
        "values": flows(dump) if dump.values else {},
        "live ranges": {(one.instruction, one.index): (one.start, one.end) for one in ranges},
        "places": places(dump),
        "ids": numbers,
    }


def _first_difference(wanted: dict[str, object], found: dict[str, object]) -> str:
    return next((name for name in ASPECTS if wanted[name] and wanted[name] != found[name]), "")


def row(release: str, findings: Sequence[Finding]) -> str:
    """A release's row of the page."""
    total = len(findings)
    differing = Counter(finding.differs for finding in findings if finding.differs)
    cells = []
    right = total
    for aspect in ASPECTS:
        right -= differing[aspect]
        cells.append(str(right))
    moved: dict[str, str] = {}
    for finding in findings:
        if finding.differs:
            name = f"`{finding.rule}`" if finding.rule else f"{finding.differs}, no known rule"
            moved.setdefault(name, finding.program)
    told = "; ".join(f"{rule}: `{program}`" for rule, program in moved.items()) or "nothing"
    return f"| {release} | {total} | {' | '.join(cells)} | {told} |\n"


def compile_suite(jaxlib: str, libtpu: str, python: str) -> Path:
    """The entries of a release, compiled once."""
    release = f"libtpu-{libtpu}" if libtpu else f"jaxlib-{jaxlib or NEWEST}"
    home, environment = HOME / release, HOME / "environments" / release
    if (home / "versions.json").exists():
        return home
    wanted = {"jax": jaxlib or NEWEST} | ({"libtpu": libtpu} if libtpu else {})
    packages = [name if of == NEWEST else f"{name}=={of}" for name, of in wanted.items()]
    own = str(environment / "bin" / "python")
    if not Path(own).exists():
        subprocess.run([python, "-m", "venv", str(environment)], check=True)
        command = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, *packages], check=True)
    dumps = HOME / "dumps" / release
    target = TOPOLOGY if libtpu else "cpu"
    arguments = [own, str(SUITE), str(dumps), target]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(arguments, check=True, env=kept)
    for program in sorted(path for path in dumps.iterdir() if path.is_dir()):
        keep_entry(program, home / program.name, needs_all=False)
    (home / "versions.json").write_text((dumps / "versions.json").read_text())
    return home


def write_row(page: Path, release: str, text: str) -> None:
    """Put a release's row into the table of the page, newest first."""
    head, table, rest = page.read_text(encoding="utf-8").partition(_ROWS)
    if not table:
        sys.exit(f"{page}: no table of releases")
    lines = rest.splitlines(keepends=True)
    count = next((n for n, line in enumerate(lines) if not line.startswith("|")), len(lines))
    rows = [line for line in lines[:count] if not line.startswith(f"| {release} |")]
    rows = sorted([text, *rows], key=_age, reverse=True)
    page.write_text("".join([head, table, *rows, *lines[count:]]), encoding="utf-8")


def _age(line: str) -> tuple[str, tuple[int, ...]]:
    package, _, number = line.split("|")[1].strip().partition("-")
    return package, tuple(map(int, number.split(".")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jaxlib", default="", help="with --libtpu, the one it is used with")
    parser.add_argument("--libtpu", default="", help=f"a version, or `{NEWEST}`")
    parser.add_argument("--python", default=sys.executable, help="to make the environment with")
    parser.add_argument("--write", type=Path, help="a page with a table of releases")
    options = parser.parse_args(arguments)
    home = compile_suite(options.jaxlib, options.libtpu, options.python)
    versions = json.loads((home / "versions.json").read_text())
    package, machine = (
        ("libtpu", find_machine("tpu", "v5e"))
        if options.libtpu
        else ("jaxlib", find_machine("cpu", ""))
    )
    release = f"{package}-{versions[package]}"
    rules = options_for(machine, find_release(release))
    entries = sorted(path.parent for path in home.glob("*/module.hlo"))
    findings = [examine(entry, rules) for entry in entries]
    for finding in findings:
        if finding.differs:
            cause = finding.problem or finding.rule or "no known rule explains it"
            sys.stdout.write(f"{finding.program}: {finding.differs}: {cause}\n")
    text = row(release, findings)
    sys.stdout.write(text)
    if options.write:
        write_row(options.write, release, text)
    return int(any(finding.differs in ASPECTS[:-1] for finding in findings))


if __name__ == "__main__":
    sys.exit(main())
