"""`hlomem verify`: is a memory plan right?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from hlomem import __version__
from hlomem.api.load import choose_module, find_program, load, load_program
from hlomem.base.atomic_files import write_files
from hlomem.base.errors import EXIT_FINDING, EXIT_OK
from hlomem.base.gc_pause import collector_off
from hlomem.base.source import visible
from hlomem.check.sarif import build_sarif
from hlomem.check.verify import verify
from hlomem.cli.options import BACKEND, CHIP
from hlomem.cli.subject import chosen_machine
from hlomem.report.json import SCHEMA
from hlomem.report.screens.text import Line, shorten, width, wrap, write_lines

if TYPE_CHECKING:
    from hlomem.check.findings import Finding, Involved, Verdict
    from hlomem.dump.dump import Dump
    from hlomem.hlo.ir import HloModule
    from hlomem.machines.machine import Machine

_MOST_SHOWN = 5


@click.command("verify")
@click.argument("path", metavar="DUMP")
@click.option(
    "--module", metavar="FILE|NAME", help="Its HLO text, else found; or which dump of a folder."
)
@BACKEND
@CHIP
@click.option("--json", "as_json", is_flag=True, help="The verdict as JSON (schema hlomem/1).")
@click.option("--sarif", metavar="FILE", type=Path, help="Also write the findings as SARIF 2.1.0.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@collector_off()
def command(
    path: str,
    module: str | None,
    backend: str | None,
    chip: str | None,
    as_json: bool,
    sarif: Path | None,
    force: bool,
) -> int:
    """Check that a memory plan is right, XLA's or ours.

    DUMP is a file of it, or a folder. Without the HLO module, what the dump alone
    can show is checked, and the rest is said. The exit code is 1 when something is found.
    """
    is_name = module is not None and Path(path).is_dir() and not Path(module).is_file()
    dump_path = _choose_dump(path, module if is_name else None)
    dump = load(dump_path)
    program = load_program(module) if module and not is_name else find_program(dump_path)
    verdict = verify(dump, module=program, machine=chosen_machine(backend, chip))
    if sarif is not None:
        text = json.dumps(build_sarif(verdict, __version__, dump_path), indent=1)
        write_files(sarif.parent, {sarif.name: [text.encode()]}, force=force)
    if as_json:
        # Unlike msgspec's own encoder, `json` writes integers of any size.
        content = {"schema": SCHEMA, "kind": "verdict", **msgspec.to_builtins(verdict)}
        sys.stdout.write(json.dumps(content) + "\n")
    else:
        write_lines(draw_verdict(verdict, width()))
    return EXIT_OK if verdict.is_clean else EXIT_FINDING


def say_wrong(dump: Dump, module: HloModule, machine: Machine) -> bool:
    """Whether a plan of ours is wrong; what is, is said on standard error."""
    verdict = verify(dump, module=module, machine=machine)
    for line in [] if verdict.is_clean else draw_verdict(verdict, width()):
        click.echo("".join(piece for piece, _ in line).rstrip(), err=True)
    return not verdict.is_clean


def _choose_dump(path: str, name: str | None) -> str:
    """The file of the one dump in a folder, or of the one of a name; a path to a file as it is."""
    if path == "-" or not Path(path).is_dir():
        return path
    return str(choose_module(Path(path), name).files[0])


def draw_verdict(verdict: Verdict, columns: int) -> list[Line]:
    """A verdict in one screen."""
    count = len(verdict.findings)
    head = "no finding" if not count else f"{count} finding" + "s" * (count > 1)
    lines: list[Line] = [
        [(shorten(visible(verdict.name), columns), "bold")],
        [
            (head, "bold red" if count else "bold green"),
            (f"  {verdict.value_count} values in {verdict.allocation_count} allocations", ""),
            (f", {verdict.pair_count} pairs share bytes rightly", "dim"),
        ],
    ]
    for finding in verdict.findings[:_MOST_SHOWN]:
        lines += [[], *_draw_finding(finding, columns)]
    if count > _MOST_SHOWN:
        lines += [[], *_draw_counts(verdict, columns)]
    notes = [f"assumed: {each}" for each in verdict.assumed]
    notes += [f"not checked: {each.rules} ({each.reason})" for each in verdict.not_checked[:5]]
    if notes:
        lines.append([])
    lines += [[(each, "dim")] for note in notes for each in wrap(note, columns)]
    return lines


def _draw_finding(finding: Finding, columns: int) -> list[Line]:
    style = "red" if finding.severity == "error" else "yellow"
    lines: list[Line] = [[(shorten(f"{finding.severity}: {finding.rule}", columns), style)]]
    lines += [[(each, "")] for each in wrap(finding.message, columns, "  ")]
    for value in finding.values:
        lines += [[(each, "cyan")] for each in wrap(_describe(value), columns, "  ")]
    for fact in finding.evidence:
        lines += [[(each, "dim")] for each in wrap(fact, columns, "  - ", "    ")]
    return lines


def _describe(value: Involved) -> str:
    return f"{value}, from {value.source}" if value.source else str(value)


def _draw_counts(verdict: Verdict, columns: int) -> list[Line]:
    lines: list[Line] = [[("all findings, by rule", "bold")]]
    for rule, count in verdict.counts().items():
        lines.append([(f"{count:>7}  ", "cyan"), (shorten(rule, columns - 9), "")])
    return lines
